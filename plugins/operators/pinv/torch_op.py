"""``NystraPinv`` in torch: ``pinv``, plain and differentiable, and ``torch.ops.nystra.pinv``."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import NystraError
from ..attention import pinv
from .schema import SCHEMA

__all__ = ["pinv", "pinv_op"]


def _check(a: Tensor, **attributes: int) -> None:
    SCHEMA.validate(attributes)
    rows, cols = (a.shape[-2:]) if a.dim() >= 2 else (0, 1)
    if isinstance(rows, int) and isinstance(cols, int) and rows != cols:
        raise NystraError(f"{SCHEMA.name}: A is {tuple(a.shape)}; expected (..., m, m)")


@torch.library.custom_op("nystra::pinv", mutates_args=())
def pinv_op(a: Tensor, iterations: int, batch_init: int) -> Tensor:
    """The operator as one node: computed in float32 for float16 and bfloat16."""
    _check(a, iterations=iterations, batch_init=batch_init)
    if not a.numel():
        return torch.empty_like(a)
    wide = a.float() if a.dtype in (torch.float16, torch.bfloat16) else a
    return pinv(wide, iterations, batch_init).to(a.dtype, copy=True).contiguous()


@pinv_op.register_fake
def _(a: Tensor, iterations: int, batch_init: int) -> Tensor:
    _check(a, iterations=iterations, batch_init=batch_init)
    return a.new_empty(a.shape)
