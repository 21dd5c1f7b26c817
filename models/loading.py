"""From a checkpoint file, or a module, to a network that is ready to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from .architecture import BuiltNetwork, Request
from .checkpoints.checkpoint import Checkpoint, read_checkpoint
from .checkpoints.licence import licence_warnings
from .facts import Facts
from .own.loading import of_code, of_module
from .own.network import OwnNetwork
from .pretrained import checkpoint_path
from .registry import find_architecture

_NOT_HYPER = {"architecture", "license"}


@dataclass(frozen=True)
class LoadedModel:
    """A network with its weights.

    Attributes:
        network: In evaluation mode, float32; what ``facts.inputs`` lists to what
            ``facts.outputs`` lists.
        facts: What it promises.
        hyper: What it was built with.
        checkpoint: The file it came from.
        warnings: What was dropped, assumed or is forbidden, one sentence each.
        retargeted: The window was changed from the trained one.
        unserved: Why attention that was found in its graph has no site; among the warnings too.
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
    **hyper: Any,
) -> LoadedModel:
    """Load a checkpoint, the shipped one of that name, or a network of your own.

    Args:
        source: A ``.safetensors``, ``.pth`` or ``.pt`` file, or the bare name of a shipped one; or
            a module with its weights, which is copied.
        plan_window: The window that a plan was made for: a network that can be run at another one
            than it was trained at is, unless ``window_size`` says otherwise.
        **hyper: Constructor arguments that take precedence over the file: ``architecture``,
            ``window_size``, ``num_heads``, ``img_range``, ... Order of trust: these arguments,
            the JSON in the file's metadata, the tensors, a documented default. ``module``,
            ``FILE.py:CALLABLE``, names the code of the network: it is run, and gets all others.

    Returns:
        The network in evaluation mode with its facts.

    Raises:
        CheckpointError: The file cannot be read, or its keys do not fit; they are listed.
        UnsupportedModelError: No known architecture, or a network of your own that fails.
        NystraError: An unknown hyper-parameter, or one that must be given; the flag is named.
    """
    if not isinstance(source, (str, Path)):
        checkpoint, built = of_module(source, hyper)
    elif "module" in hyper:
        checkpoint, built = of_code(checkpoint_path(source), hyper)
    else:
        checkpoint, built = _of_known(checkpoint_path(source), plan_window, hyper)
    built.network.eval().requires_grad_(requires_grad=False)
    warnings = checkpoint.notes + licence_warnings(built.facts.license) + built.warnings
    return LoadedModel(
        built.network, built.facts, built.hyper, checkpoint, warnings, built.retargeted
    )


def _of_known(
    path: Path, plan_window: Sequence[int] | None, hyper: dict[str, Any]
) -> tuple[Checkpoint, BuiltNetwork]:
    checkpoint = read_checkpoint(path)
    stored = checkpoint.hyper
    name = hyper.pop("architecture", stored.get("architecture"))
    architecture = find_architecture(checkpoint.state, name).architecture()
    if plan_window is not None and architecture.retargets:
        hyper.setdefault("window_size", list(plan_window))
    request = Request(
        source=checkpoint.path.name,
        overrides=hyper,
        stored={key: value for key, value in stored.items() if key not in _NOT_HYPER},
        license=str(stored.get("license", "unknown")),
    )
    return checkpoint, architecture.load(checkpoint.state, request)
