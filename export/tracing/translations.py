"""Operators of PyTorch that ``torch.onnx`` has no translation for, or one for numbers only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18 as op
from onnxscript.function_libs.torch_lib.ops.core import aten_remainder, aten_remainder_scalar


def missing_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the rows for ``torch.onnx.export``."""
    return {torch.ops.aten.remainder.Scalar: _remainder, torch.ops.aten.sort.stable: _sort}


def _remainder(tensor: Any, divisor: Any) -> Any:
    """By a size too: a cyclic shift (``torch.roll``) of a map of any size is an index modulo it."""
    if isinstance(divisor, (int, float)):
        return aten_remainder_scalar(tensor, divisor)
    return aten_remainder(tensor, op.CastLike(divisor, tensor))


def _sort(tensor: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """The largest or least of all: of equal ones TopK takes the first first, which is stable."""
    axis = dim % len(tensor.shape)
    whole = op.Shape(tensor, start=axis, end=axis + 1)
    return op.TopK(tensor, whole, axis=axis, largest=int(descending), sorted=1)
