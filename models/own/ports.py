"""The ports of a network that declares none, found by running it once."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ...core.errors import UnsupportedModelError, foreign_reason
from ...core.ports.examples import example_arrays
from ...core.ports.port import CONDITION, LOGITS_AXES, Port, image_size
from ..sizes.padded_network import in_order
from ..sizes.plain_run import run_plainly
from .conditions import with_conditions

_SIDES = (64, 48, 56, 60, 72, 80, 96, 112, 120, 128, 32, 28, 144, 160, 192, 224, 240, 256, 384)
"""Sides that are tried: multiples of the usual windows and strides."""

Size: TypeAlias = tuple[int, int]
"""Height and width, in pixels."""

_EQUAL_RATIOS = 3
"""Sizes with one ratio of sides after which the scale is no integer: patches of 14 leave 56 of 64
pixels and 42 of 48."""

_CHANNELS = (3, 1, 4)
_ANY = (Port("output", "picture"),)


def measure_ports(
    module: nn.Module,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    stated: Size | None = None,
) -> tuple[tuple[Port, ...], tuple[Port, ...], Size | None, set[str]]:
    """Return inputs and outputs of a module, a size that works, and the types of its autocasts.

    The size is None if sides are fixed.

    Args:
        module: In evaluation mode.
        inputs: The declared inputs; (): one image.
        outputs: The declared outputs; (): one output.
        stated: Height and width that it is exported for, which are tried too.

    Raises:
        UnsupportedModelError: It fails at every side that is tried, or its results cannot be
            identified: inputs and outputs must be declared then.
    """
    images = [_image(channels) for channels in _CHANNELS]
    choices = [tuple(inputs)] if inputs else [with_conditions(module, image) for image in images]
    sizes: list[Size | None] = [(side, side) for side in _SIDES]
    if stated is not None:
        sizes.insert(1, stated)
    first = ""
    ratios: Counter[tuple[float, ...]] = Counter()
    for ports in choices:
        for size in sizes if ports[0].sides is None else [None]:
            try:
                returned, skipped = run_once(module, ports, size)
            except Exception as error:  # noqa: BLE001 - any error means that it does not take this input
                reason = foreign_reason(error, 200)
                shapes = [tuple(tensor.shape) for tensor in _examples(ports, size)]
                first = first or f"fails for {', '.join(map(str, shapes))}: {reason}"
                continue
            if outputs:
                return ports, tuple(outputs), size, skipped
            output, example = in_order(returned, _ANY)[0], _examples(ports, size)[0]
            fault = _fault_of_output(output, example)
            if not fault:
                return ports, (_output(output, example),), size, skipped
            first = first or fault
            ratio = tuple(a / b for a, b in zip(output.shape[2:], example.shape[2:], strict=False))
            ratios[ratio] += 1
            if output.dim() != example.dim() or ratios[ratio] == _EQUAL_RATIOS:
                raise UnsupportedModelError(f"the network {first}; see docs/own.md")
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


def _examples(ports: Sequence[Port], size: Size | None) -> list[Tensor]:
    lengths = {"batch": 1} | ({} if size is None else image_size(*size))
    return [torch.from_numpy(array) for array in example_arrays(ports, lengths).values()]


def run_once(
    module: nn.Module, ports: Sequence[Port], size: Size | None
) -> tuple[object, set[str]]:
    """Return what a module returns for random inputs, and the types of its autocasts."""
    with torch.no_grad(), warnings.catch_warnings(), run_plainly() as skipped:
        warnings.simplefilter("ignore")
        return module(*_examples(ports, size)), skipped


def _output(returned: Tensor, example: Tensor) -> Port:
    if returned.dim() == 2:
        classes = {"classes": returned.shape[1]}
        return Port("logits", "logits", LOGITS_AXES, classes, range=None)
    sides, own = returned.shape[2:], example.shape[-2:]
    scale = sides[0] // own[0]
    return Port("output", "picture", lengths={"channels": returned.shape[1]}, multiple=scale)


def _fault_of_output(returned: Tensor, example: Tensor) -> str:
    """Return why a result is no image of an integer scale, or "".

    A network that cuts its image to a multiple returns one at other sizes.
    """
    sides, own = tuple(returned.shape[2:]), tuple(example.shape[-2:])
    scale = sides[0] // own[0] if len(sides) == 2 else 0
    if returned.dim() == 2 or (scale > 0 and sides == (scale * own[0], scale * own[1])):
        return ""
    if returned.dim() == 3:
        way = "return it with its axis of channels, `output[:, None]`"
    else:
        way = "where it cuts sides to a multiple (patches), give `static` such sides"
    return (
        f"returns the shape {tuple(returned.shape)} for {tuple(example.shape)}, expected an image "
        f"(B, C, H, W) of an integer scale, or logits (B, K); {way}"
    )
