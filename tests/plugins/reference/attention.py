"""``NystraAttention`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nystra.core.errors import NystraError
from nystra.plugins.operators.attention.schema import SCHEMA
from reference.windows import Array


def reference(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    attn_bias: npt.ArrayLike,
    **attributes: object,
) -> Array:
    """Return softmax(scale Q K^T + bias) V of every head; zeros where all of the bias is -inf.

    Args:
        q: (B, h, N, d).
        k: (B, h, M, d).
        v: (B, h, M, e).
        attn_bias: Broadcast to (B, h, N, M); any one element where ``bias`` is 0.
        **attributes: Those of the schema.

    Returns:
        (B, h, N, e) in float64.

    Raises:
        NystraError: The schema refuses the attributes, or the shapes do not fit together.
    """
    checked = SCHEMA.validate(attributes)
    queries, keys, values, bias = (np.asarray(x, dtype=np.float64) for x in (q, k, v, attn_bias))
    lists = [queries, keys, values]
    if any(array.ndim != 4 or 0 in array.shape for array in lists):
        raise NystraError(f"shapes {[array.shape for array in lists]}; expected four sizes each")
    batch, heads, n, d = queries.shape
    m, e = keys.shape[2], values.shape[3]
    if keys.shape != (batch, heads, m, d) or values.shape != (batch, heads, m, e):
        raise NystraError(f"shapes {[array.shape for array in lists]} do not fit together")
    full = (batch, heads, n, m)
    if not checked["bias"]:
        bias = np.zeros(1)
    elif bias.ndim != 4 or any(
        size not in (1, whole) for size, whole in zip(bias.shape, full, strict=True)
    ):
        raise NystraError(f"attn_bias is {bias.shape}; expected {full}")
    bias = np.broadcast_to(bias, full)
    out = np.zeros((batch, heads, n, e))
    for image, head, query in np.ndindex(full[:3]):
        here = bias[image, head, query]
        seen = here != -np.inf
        if not seen.any():
            continue
        products = keys[image, head] @ queries[image, head, query]
        logits = (checked["scale"] * products + here)[seen]
        weights = np.exp(logits - logits.max())
        out[image, head, query] = weights / weights.sum() @ values[image, head][seen]
    return out
