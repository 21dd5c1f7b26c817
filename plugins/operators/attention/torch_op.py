"""``NystraAttention`` in torch: a plain function and ``torch.ops.nystra.attention``."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ....core.errors import NystraError
from ..attention_torch import softmax_attention
from ..operator_torch import register
from ..schema import Attributes
from .schema import SCHEMA


def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor | None = None, **attributes: float
) -> Tensor:
    """Return softmax(scale q k^T + bias) v, (B, h, N, e), differentiable.

    Args:
        q: (B, h, N, d).
        k: (B, h, M, d).
        v: (B, h, M, e).
        attn_bias: Each of its four axes is that of (B, h, N, M) or 1; read with ``bias`` 1 only.
        **attributes: Those of the schema.

    Raises:
        NystraError: The schema refuses the attributes, or the shapes do not fit together.
    """
    checked = SCHEMA.validate(attributes)
    _check(q, k, v, attn_bias, checked)
    bias = attn_bias if checked["bias"] else None
    return softmax_attention(q, k, v, float(checked["scale"]), bias)


def _check(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, checked: Attributes) -> None:
    for name, tensor in zip("qkv", (q, k, v), strict=True):
        if tensor.dim() != 4:
            raise NystraError(
                f"{SCHEMA.name}: {name} is {tuple(tensor.shape)}; expected (batch, heads, tokens, "
                "channels)"
            )
    batch, heads, queries, channels = q.shape
    keys = k.shape[2]
    _require("k", k, (batch, heads, keys, channels))
    _require("v", v, (batch, heads, keys, v.shape[3]))
    if isinstance(keys, int) and keys == 0:
        raise NystraError(f"{SCHEMA.name}: k is {tuple(k.shape)}; expected at least one key")
    if not checked["bias"]:
        return
    if bias is None:
        raise NystraError(f"{SCHEMA.name}: the attribute bias is 1, but there is no attn_bias")
    _require("attn_bias", bias, (batch, heads, queries, keys), broadcast=True)


def _require(name: str, tensor: Tensor, expected: tuple[Any, ...], broadcast: bool = False) -> None:
    def fits(got: Any, expected: Any) -> bool:
        both_fixed = isinstance(got, int) and isinstance(expected, int)
        return not both_fixed or got == expected or (broadcast and got == 1)

    if tensor.dim() != len(expected) or not all(map(fits, tensor.shape, expected)):
        also = ", or 1 for any of its sizes" if broadcast else ""
        raise NystraError(
            f"{SCHEMA.name}: {name} is {tuple(tensor.shape)}; expected {expected}{also}"
        )


def _empty(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, checked: Attributes) -> Tensor:
    _check(q, k, v, bias, checked)
    return q.new_empty((*q.shape[:3], v.shape[3]))


register(SCHEMA, attention, _empty)
