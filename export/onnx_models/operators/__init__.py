"""The supported operators of ONNX, each a function of tensors and attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .elementwise import ELEMENTWISE
from .layers import LAYERS
from .movement import MOVEMENT
from .reductions import REDUCTIONS
from .sizes import SIZES

OPERATORS: dict[str, Callable[..., Any]] = {
    **ELEMENTWISE,
    **LAYERS,
    **MOVEMENT,
    **REDUCTIONS,
    **SIZES,
}
"""Operator of the domain of ONNX -> what computes it: inputs in their order, attributes by name."""
