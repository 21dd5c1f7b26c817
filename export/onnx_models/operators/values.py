"""Common functions of the operators: numbers from tensors, and size limits of results."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

MOST_ELEMENTS = 1 << 31
"""Most elements of one result: a larger declared shape is refused before it is computed."""


def numbers(values: Tensor | Sequence[int]) -> list[int]:
    """Return the integers in a tensor, such as sizes and axes."""
    return [int(value) for value in (values.tolist() if isinstance(values, Tensor) else values)]


class TooLargeError(ValueError):
    """A result is declared larger than the limit."""


def within_bounds(shape: Sequence[int]) -> Sequence[int]:
    """Return the shape of a result after a check.

    Raises:
        TooLargeError: It exceeds the largest number of elements.
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
    """Return the broadcast shape of element-wise operators.

    Raises:
        RuntimeError: The shapes cannot be broadcast. TooLargeError: The result has too many
            elements.
    """
    return within_bounds(torch.broadcast_shapes(*(tensor.shape for tensor in tensors)))


def axes_of(axes: Tensor | Sequence[int] | None, rank: int) -> list[int]:
    """Return axes as non-negative numbers: all of them by default.

    Raises:
        ValueError: One of them is beyond the rank.
    """
    if axes is None:
        return list(range(rank))
    listed = numbers(axes)
    if any(not -rank <= axis < rank for axis in listed):
        raise ValueError(f"axes {listed} of a tensor of rank {rank}")
    return [axis % rank for axis in listed]
