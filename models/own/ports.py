"""The ports of a network that declares none, found by running it once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...core.errors import UnsupportedModelError, foreign_reason
from ...core.ports.examples import example_arrays
from ...core.ports.port import CONDITION, LOGITS_AXES, Port, image_size
from ..sizes.padded_network import in_order
from ..sizes.plain_run import plain_run
from .conditions import with_conditions

_SIDES = (64, 48, 56, 60, 72, 80, 96, 112, 120, 128, 32, 28, 144, 160, 192, 224, 240, 256, 384)
"""Sides that are tried: multiples of the usual windows and strides."""

_CHANNELS = (3, 1, 4)
_ANY = (Port("output", "picture"),)


def measured_ports(
    module: nn.Module, inputs: Sequence[Port], outputs: Sequence[Port]
) -> tuple[tuple[Port, ...], tuple[Port, ...], int | None, set[str]]:
    """Return inputs and outputs of a module, a side that works, and the types of its autocasts.

    The side is None if sides are fixed.

    Args:
        module: In evaluation mode.
        inputs: The declared inputs; (): one image.
        outputs: The declared outputs; (): one output.

    Raises:
        UnsupportedModelError: It fails at every side that is tried, or its results cannot be
            identified: inputs and outputs must be declared then.
    """
    images = [_image(channels) for channels in _CHANNELS]
    choices = [tuple(inputs)] if inputs else [with_conditions(module, image) for image in images]
    first = ""
    for ports in choices:
        for side in _SIDES if ports[0].sides is None else (None,):
            try:
                returned, skipped = _returned(module, ports, side)
            except Exception as error:  # any error means that it does not take this input
                reason = foreign_reason(error, 200)
                shapes = [tuple(tensor.shape) for tensor in _examples(ports, side)]
                first = first or f"fails for {', '.join(map(str, shapes))}: {reason}"
                continue
            if outputs:
                return ports, tuple(outputs), side, skipped
            given = _examples(ports, side)[0]
            return ports, (_output(in_order(returned, _ANY)[0], given),), side, skipped
    raise UnsupportedModelError(f"the network {first}{_hint(first)}; see docs/own.md")


def _hint(reason: str) -> str:
    if "missing" in reason and "required" in reason and "argument" in reason:
        return (
            "; declare all inputs as ports of an OwnNetwork: a step, a vector or tokens as "
            f"Port(NAME, {CONDITION!r}, AXES, LENGTHS)"
        )
    if not any(name in reason for name in ("Half", "BFloat16", "float16")):
        return ""
    return (
        "; weights and images are float32 here, so do not convert them inside of it "
        "(`.half()`, `.bfloat16()`), or convert to the type of its weights"
    )


def _image(channels: int) -> Port:
    return Port("input", "image", lengths={"channels": channels})


def _examples(ports: Sequence[Port], side: int | None) -> list[Tensor]:
    size = {"batch": 1} | ({} if side is None else image_size(side, side))
    return [torch.from_numpy(array) for array in example_arrays(ports, size).values()]


def _returned(
    module: nn.Module, ports: Sequence[Port], side: int | None
) -> tuple[object, set[str]]:
    with torch.no_grad(), warnings.catch_warnings(), plain_run() as skipped:
        warnings.simplefilter("ignore")
        return module(*_examples(ports, side)), skipped


def _output(returned: Tensor, given: Tensor) -> Port:
    if returned.dim() == 2:
        classes = {"classes": returned.shape[1]}
        return Port("logits", "logits", LOGITS_AXES, classes, range=None)
    sides, own = returned.shape[2:], given.shape[-2:]
    scale = sides[0] // own[0] if len(sides) == 2 else 0
    if scale == 0 or tuple(sides) != (scale * own[0], scale * own[1]):
        raise UnsupportedModelError(
            f"the network returns the shape {tuple(returned.shape)} for {tuple(given.shape)}, "
            "expected an image (B, C, H, W) of an integer scale, or logits (B, K); see docs/own.md"
        )
    return Port("output", "picture", lengths={"channels": returned.shape[1]}, multiple=scale)
