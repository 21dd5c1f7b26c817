"""Translations of PyTorch operators that ``torch.onnx`` lacks, or has for numbers only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18 as op
from onnxscript.function_libs.torch_lib.ops.core import aten_remainder, aten_remainder_scalar


def missing_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the translations for ``torch.onnx.export``."""
    return {torch.ops.aten.remainder.Scalar: _remainder, torch.ops.aten.sort.stable: _sort}


def _remainder(tensor: Any, divisor: Any) -> Any:
    """Translate a remainder whose divisor may be a size.

    A cyclic shift (``torch.roll``) of a map of any size is an index modulo its size.
    """
    if isinstance(divisor, (int, float)):
        return aten_remainder_scalar(tensor, divisor)
    return aten_remainder(tensor, op.CastLike(divisor, tensor))


def _sort(tensor: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """Translate a sort as TopK of all elements, which is stable: equal ones keep their order."""
    axis = dim % len(tensor.shape)
    whole = op.Shape(tensor, start=axis, end=axis + 1)
    return op.TopK(tensor, whole, axis=axis, largest=int(descending), sorted=1)
