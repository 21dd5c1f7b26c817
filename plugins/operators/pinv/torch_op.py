"""``NystraPinv`` in torch: ``pinv``, plain and differentiable, and ``torch.ops.nystra.pinv``."""

from __future__ import annotations

from torch import Tensor

from ....core.errors import NystraError
from ..attention_torch import pinv
from ..operator_torch import register
from ..schema import Attributes
from .schema import SCHEMA

__all__ = ["pinv"]


def _empty(a: Tensor, attributes: Attributes) -> Tensor:
    rows, cols = (a.shape[-2:]) if a.dim() >= 2 else (0, 1)
    if isinstance(rows, int) and isinstance(cols, int) and rows != cols:
        raise NystraError(f"{SCHEMA.name}: A is {tuple(a.shape)}; expected (..., m, m)")
    return a.new_empty(a.shape)


register(SCHEMA, pinv, _empty)
