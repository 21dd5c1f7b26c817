"""The remainder of a division by a size: what onnxscript translates for numbers only.

PyTorch writes a cyclic shift (``torch.roll``) of a map of any size as an index modulo that size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18 as op
from onnxscript.function_libs.torch_lib.ops.core import aten_remainder, aten_remainder_scalar


def remainder_translation() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the rows for ``torch.onnx.export``."""
    return {torch.ops.aten.remainder.Scalar: _translate}


def _translate(tensor: Any, divisor: Any) -> Any:
    if isinstance(divisor, (int, float)):
        return aten_remainder_scalar(tensor, divisor)
    return aten_remainder(tensor, op.CastLike(divisor, tensor))
