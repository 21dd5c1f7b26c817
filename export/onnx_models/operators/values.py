"""What operators of ONNX have in common: numbers read off tensors, and how large results get."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

MOST_ELEMENTS = 1 << 31
"""Most elements of one result: a larger declared shape is refused before it is computed."""


def numbers(values: Tensor | Sequence[int]) -> list[int]:
    """Return the whole numbers that a tensor holds, as sizes and axes are."""
    return [int(value) for value in (values.tolist() if isinstance(values, Tensor) else values)]


class TooLargeError(ValueError):
    """A result that is declared larger than any that is computed."""


def within_bounds(shape: Sequence[int]) -> Sequence[int]:
    """Return a shape that a result is to have.

    Raises:
        TooLargeError: It has more elements than a result may have.
        ValueError: It has a negative side.
    """
    text = "x".join(map(str, shape))
    if min(shape, default=0) < 0:
        raise ValueError(f"a result of {text} was declared")
    if math.prod(shape) > MOST_ELEMENTS:
        raise TooLargeError(
            f"a result of {text} was declared, expected at most {MOST_ELEMENTS} elements"
        )
    return shape


def broadcast_shape(*tensors: Tensor) -> Sequence[int]:
    """Return the shape that element-wise operators give.

    Raises:
        RuntimeError: The shapes do not go together.
        TooLargeError: They give too many elements.
    """
    return within_bounds(torch.broadcast_shapes(*(tensor.shape for tensor in tensors)))


def axes_of(axes: Tensor | Sequence[int] | None, rank: int) -> list[int]:
    """Return axes counted from the front: all of them where none are said.

    Raises:
        ValueError: One of them is beyond the rank.
    """
    if axes is None:
        return list(range(rank))
    listed = numbers(axes)
    if any(not -rank <= axis < rank for axis in listed):
        raise ValueError(f"axes {listed} of a tensor of rank {rank}")
    return [axis % rank for axis in listed]
