"""Loads a checkpoint file or a module as a network that is ready to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from .architecture import BuiltNetwork, Request
from .checkpoints.checkpoint import CHOSEN, Checkpoint, read_checkpoint
from .checkpoints.license import license_warnings, read_license
from .facts import Facts
from .own.network import OwnNetwork
from .pretrained import checkpoint_path
from .registry import find_architecture

_NOT_HYPER = {"architecture", "license"}


@dataclass(frozen=True)
class LoadedModel:
    """A network with its weights.

    Attributes:
        network: The module in evaluation mode and float32; it maps ``facts.inputs`` to
            ``facts.outputs``.
        facts: Its properties.
        hyper: Its hyper-parameters.
        checkpoint: The file that it was loaded from.
        warnings: Dropped tensors, assumptions and restrictions of use, one sentence each.
        retargeted: The window was changed from the trained one.
        unserved: Why attention in its graph has no site; also in the warnings.
    """

    network: nn.Module
    facts: Facts
    hyper: dict[str, Any]
    checkpoint: Checkpoint
    warnings: tuple[str, ...] = ()
    retargeted: bool = False
    unserved: tuple[str, ...] = ()


def load(
    source: str | Path | nn.Module | OwnNetwork,
    *,
    plan_window: Sequence[int] | None = None,
    probe_size: tuple[int, int] | None = None,
    **hyper: Any,
) -> LoadedModel:
    """Load a checkpoint, a shipped checkpoint by name, or your own network.

    Args:
        source: A ``.safetensors``, ``.pth`` or ``.pt`` file, a folder of Hugging Face's with one,
            or the bare name of a shipped one; or a module with its weights, which is copied.
        plan_window: The window of a plan: a network that supports other windows than the trained
            one uses it, unless ``window_size`` is given.
        probe_size: Height and width that your own network is to run at: they are tried too when
            its sizes are measured.
        **hyper: Constructor arguments that take precedence over the file: ``architecture``,
            ``window_size``, ``num_heads``, ``img_range``, ... The order of precedence is: these
            arguments, the JSON in the file's metadata, the tensors, a documented default.
            ``state_dict`` is the name of one of several networks in the file.
            ``module``, ``FILE.py:CALLABLE``, is the code of your own network: it is executed, with
            all other arguments.

    Returns:
        The network with its facts.

    Raises:
        CheckpointError: The file cannot be read, or its keys do not match; the message lists them.
        UnsupportedModelError: The architecture is unknown, or your own network fails.
        NystraError: A hyper-parameter is unknown or missing; the message names it.
    """
    if not isinstance(source, (str, Path)):
        from .own.loading import of_module

        checkpoint, built = of_module(source, hyper, probe_size)
    elif "module" in hyper:
        from .own.loading import of_code

        checkpoint, built = of_code(checkpoint_path(source), hyper, probe_size)
    else:
        checkpoint, built = _of_known(checkpoint_path(source), plan_window, hyper)
    built.network.eval().requires_grad_(requires_grad=False)
    warnings = (
        checkpoint.notes + license_warnings(built.facts.license, checkpoint.hyper) + built.warnings
    )
    return LoadedModel(
        built.network, built.facts, built.hyper, checkpoint, warnings, built.retargeted
    )


def _of_known(
    path: Path, plan_window: Sequence[int] | None, hyper: dict[str, Any]
) -> tuple[Checkpoint, BuiltNetwork]:
    checkpoint = read_checkpoint(path, chosen=hyper.pop(CHOSEN, None))
    stored = checkpoint.hyper
    name = hyper.pop("architecture", stored.get("architecture"))
    architecture = find_architecture(checkpoint.state, name).architecture()
    if plan_window is not None and architecture.retargets:
        hyper.setdefault("window_size", list(plan_window))
    request = Request(
        source=checkpoint.path.name,
        overrides=hyper,
        stored={key: value for key, value in stored.items() if key not in _NOT_HYPER},
        license=read_license(stored),
        config=checkpoint.config,
    )
    return checkpoint, architecture.load(checkpoint.state, request)
