"""From a checkpoint file to a network that is ready to run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from .architecture import Request
from .checkpoints.checkpoint import Checkpoint, read_checkpoint
from .checkpoints.licence import licence_warnings
from .facts import Facts
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
    """

    network: nn.Module
    facts: Facts
    hyper: dict[str, Any]
    checkpoint: Checkpoint
    warnings: tuple[str, ...] = ()
    retargeted: bool = False


def load(path: str | Path, **hyper: Any) -> LoadedModel:
    """Load a checkpoint, or the shipped one of that name.

    Args:
        path: A ``.safetensors``, ``.pth`` or ``.pt`` file, or the bare name of a shipped one.
        **hyper: Constructor arguments that take precedence over the file: ``architecture``,
            ``window_size``, ``num_heads``, ``img_range``, ... Order of trust: these arguments,
            the JSON in the file's metadata, the tensors, a documented default.

    Returns:
        The network in evaluation mode with its facts.

    Raises:
        CheckpointError: The file cannot be read, or its keys do not fit; they are listed.
        UnsupportedModelError: No known architecture.
        NystraError: An unknown hyper-parameter, or one that must be given; the flag is named.
    """
    checkpoint = read_checkpoint(checkpoint_path(path))
    stored = checkpoint.hyper
    name = hyper.pop("architecture", stored.get("architecture"))
    row = find_architecture(checkpoint.state, name)
    request = Request(
        source=checkpoint.path.name,
        overrides=hyper,
        stored={key: value for key, value in stored.items() if key not in _NOT_HYPER},
        license=str(stored.get("license", "unknown")),
    )
    built = row.architecture().load(checkpoint.state, request)
    built.network.eval().requires_grad_(requires_grad=False)
    warnings = checkpoint.notes + licence_warnings(request.license) + built.warnings
    return LoadedModel(
        built.network, built.facts, built.hyper, checkpoint, warnings, built.retargeted
    )
