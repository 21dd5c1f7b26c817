"""Common functions of the operators: numbers from tensors, and size limits of results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

MOST_ELEMENTS = 1 << 31
"""Most elements of one result: a larger declared shape is refused before it is computed."""

_USUAL = 1 << 28
_USUAL_PIXELS = 64 * 64
_LIMIT = ContextVar("most elements of one result", default=MOST_ELEMENTS)


@contextmanager
def limited_to(pixels: int) -> Iterator[None]:
    """Refuse results that no network has for an image of so many pixels.

    The scores of eight heads of attention between all pixels are a half of what is allowed.
    """
    most = int(_USUAL * max(1.0, pixels / _USUAL_PIXELS) ** 2)
    before = _LIMIT.set(min(most, MOST_ELEMENTS))
    try:
        yield
    finally:
        _LIMIT.reset(before)


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
    if math.prod(shape) > _LIMIT.get():
        raise TooLargeError(
            f"a result of {text} was declared, expected at most {_LIMIT.get()} elements"
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
