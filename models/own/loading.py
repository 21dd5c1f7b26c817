"""Loading a network of the user: a module, or a checkpoint and the code of its module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from ...core.errors import NystraError
from ..architecture import BuiltNetwork
from ..checkpoints.checkpoint import CHOSEN, Checkpoint, read_checkpoint
from ..checkpoints.containers import Criteria
from ..checkpoints.license import UNKNOWN, read_license
from ..checkpoints.tensor_checks import check_tensors
from .checkpoint import fill, measure_network
from .code import read_code
from .network import OwnNetwork
from .plain_copy import copy_network, state_sha256
from .ports import Size


def of_module(
    network: nn.Module | OwnNetwork, hyper: Mapping[str, Any], stated: Size | None = None
) -> tuple[Checkpoint, BuiltNetwork]:
    """Return a module as a loaded checkpoint; ``hyper`` must be empty, since it is built already.

    Args:
        network: The module.
        hyper: Nothing.
        stated: Height and width that it is exported for, if these are known.

    Raises:
        NystraError: It is not a module, or cannot be used.
    """
    own = OwnNetwork.of(network)
    if hyper:
        raise NystraError(
            f"{own.title} is built already, so {', '.join(hyper)} does not apply: omit it"
        )
    module = copy_network(own)
    state = module.state_dict()
    name = Path(own.title)
    check_tensors(state, name)
    return Checkpoint(name, state_sha256(state), state), measure_network(own, module, {}, stated)


def of_code(
    path: Path, hyper: Mapping[str, Any], stated: Size | None = None
) -> tuple[Checkpoint, BuiltNetwork]:
    """Return a checkpoint, and the network of the code in ``hyper["module"]`` with its weights.

    Args:
        path: Path of the checkpoint.
        hyper: Other keyword arguments of the callable.
        stated: As of `of_module`.

    Raises:
        NystraError: The code cannot be run, or returns no network.
        CheckpointError: The tensors are not those of the network.
    """
    arguments = dict(hyper)
    code = read_code(str(arguments.pop("module")))
    chosen = arguments.pop(CHOSEN, None)
    own = code.network(arguments)
    module = copy_network(own)
    keys = module.state_dict().keys()
    criteria = Criteria(
        lambda state: state.keys() == keys,
        lambda state: len(keys & state.keys()) / max(len(keys), 1),
    )
    checkpoint = read_checkpoint(path, criteria, chosen)

    def build_again() -> nn.Module | None:
        return copy_network(code.network(arguments)) if code.is_callable else None

    notes = fill(module, checkpoint.state, f"{path.name} does not match {code.text}", build_again)
    if own.license == UNKNOWN:
        own = replace(own, license=read_license(checkpoint.hyper))
    module_hyper = {"module": code.text, "module_sha256": code.sha256, **arguments}
    built = measure_network(own, module, module_hyper, stated)
    return checkpoint, replace(built, warnings=(*built.warnings, *notes))
