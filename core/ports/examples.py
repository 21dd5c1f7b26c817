"""Example inputs of a network, to trace it, to time it and to compare shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..arrays import Array
from .port import CONDITION, IMPLIED_RANGES, PER_TOKEN_AXES, SIDES, UNIT, Port, Size

_FLOATING = ("float16", "float32", "float64")
_TRACED = {"batch": 2, "frames": 3, "steps": 7}
_BATCHES = (1, 2, 5)
_OWN_SIZE = {"height": 3, "width": -2}


def example_arrays(ports: Sequence[Port], size: Size) -> dict[str, Array]:
    """Return an array for every input by name: noise in its range, a hole, or zeros.

    Integers are noise if they are an image, and zeros otherwise. A number per token is 1, and 0 for
    the last quarter, as in a padding mask.

    Args:
        ports: The inputs of a network.
        size: Lengths by the name of an axis; see `Port.shape`.

    Raises:
        NystraError: A port does not support that size.
    """
    return {port.name: example_array(port, size) for port in ports}


def example_array(port: Port, size: Size) -> Array:
    """Return an array for one input; see `example_arrays`."""
    per_token = port.role == CONDITION and port.axes == PER_TOKEN_AXES
    make = _keep if per_token else _MAKERS.get(port.role, _noise)
    return make(port, port.shape(size))


def batch_sizes(ports: Sequence[Port], sides: Size) -> list[Size]:
    """Return the sizes to test if the sides are fixed: three batches, or one if that is fixed too.

    A batch of 1 alone would not show whether images of a batch affect each other.
    """
    if "batch" in ports[0].lengths:
        return [dict(sides)]
    return [dict(sides) | {"batch": batch} for batch in _BATCHES]


def trace_size(ports: Sequence[Port], size: Size) -> dict[str, int]:
    """Return a size at which a tracer mistakes no free axis for a constant or another axis.

    A batch of 1 would become a constant; axes of one length would become one.
    """
    free = {name for port in ports for name in port.free_axes().values()}
    traced = {axis: length for axis, length in _TRACED.items() if axis in free}
    return own_sizes(ports, traced | dict(size))


def own_sizes(ports: Sequence[Port], size: Size) -> dict[str, int]:
    """Return a size in which a port of its own size is a little higher and narrower."""
    sizes = dict(size)
    for port in ports:
        for axis in SIDES:
            if port.own_size and axis in port.axes and axis not in port.lengths:
                sizes[port.size_name(axis)] = max(1, size[axis] + _OWN_SIZE[axis])
    return sizes


def _noise(port: Port, shape: tuple[int, ...]) -> Array:
    integral = port.dtype not in _FLOATING
    if integral and (port.range is None or port.dtype not in IMPLIED_RANGES):
        return np.zeros(shape, port.dtype)
    low, high = port.range or UNIT
    if integral:
        return np.random.default_rng(0).integers(int(low), int(high), shape).astype(port.dtype)
    noise: Array = low + (high - low) * np.random.default_rng(0).random(shape).astype(port.dtype)
    return noise


def _keep(port: Port, shape: tuple[int, ...]) -> Array:
    low, high = port.range or UNIT
    values = np.full(shape, high, port.dtype)
    values[:, shape[1] - shape[1] // 4 :] = low
    return values


def _hole(port: Port, shape: tuple[int, ...]) -> Array:
    mask = np.zeros(shape, port.dtype)
    rows, columns = (slice(side // 3, side // 3 + -(-side // 3)) for side in shape[-2:])
    mask[..., rows, columns] = 1.0
    return mask


_MAKERS: dict[str, Callable[[Port, tuple[int, ...]], Array]] = {"mask": _hole}
