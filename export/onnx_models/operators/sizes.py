"""Operators of sizes and types, and those that create tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .values import numbers, within_bounds

TYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}
"""Number of a type in ONNX -> the type in PyTorch."""


def _cast(x: Tensor, to: int, saturate: int = 1) -> Tensor:
    if to not in TYPES:
        raise ValueError(f"a Cast to the type {to} of ONNX is not supported")
    return x.to(TYPES[to])


def _cast_like(x: Tensor, like: Tensor, saturate: int = 1) -> Tensor:
    return x.to(like.dtype)


def _shape(x: Tensor, start: int = 0, end: int | None = None) -> Tensor:
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64)


def _size(x: Tensor) -> Tensor:
    return torch.tensor(x.numel())


def _constant(
    value: Tensor | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
) -> Tensor:
    if value is not None:
        return value
    whole = value_int if value_int is not None else value_ints
    if whole is not None:
        return torch.tensor(whole, dtype=torch.int64)
    real = value_float if value_float is not None else value_floats
    if real is None:
        raise ValueError("a Constant whose attributes hold no supported value")
    return torch.tensor(real, dtype=torch.float32)


def _constant_of_shape(shape: Tensor, value: Tensor | None = None) -> Tensor:
    filling = torch.zeros(1) if value is None else value
    return torch.full(list(within_bounds(numbers(shape))), filling.item(), dtype=filling.dtype)


def _range(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    first, last, step = (float(value) for value in (start, limit, delta))
    if step == 0:
        raise ValueError("a Range by steps of 0 is not supported")
    within_bounds([max(0, math.ceil((last - first) / step))])
    if (last - first) / step <= 0:
        return torch.empty(0, dtype=start.dtype)
    return torch.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


def _nonzero(x: Tensor) -> Tensor:
    return x.nonzero().T


SIZES: dict[str, Callable[..., Tensor]] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "NonZero": _nonzero,
    "Range": _range,
    "Shape": _shape,
    "Size": _size,
}
"""Operator of ONNX -> what computes it."""
