"""``NystraWindowOverlap`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nystra.plugins.operators.window_overlap.schema import SCHEMA
from reference.windows import Array, check_map, empty_output


def reference(qkv: npt.ArrayLike, bias_table: npt.ArrayLike, **attributes: object) -> Array:
    """Return softmax(scale Q K^T + bias) V of every head, K and V from around each window.

    Args:
        qkv: (B, H, W, h(2d+e)).
        bias_table: ((wh+kh-1)(ww+kw-1), h); any one element where ``bias`` is 0.
        **attributes: Those of the schema.

    Returns:
        (B, H, W, h e) in float64.

    Raises:
        NystraError: The schema refuses the attributes, or the map is not a multiple of the window.
    """
    checked = SCHEMA.validate(attributes)
    qkv = np.asarray(qkv, dtype=np.float64)
    check_map(qkv, checked)
    names = ("heads", "head_dim", "value_dim", "window_h", "window_w", "margin_h", "margin_w")
    heads, d, e, rows, cols, above, left = (int(checked[name]) for name in names)
    q, k, v = np.split(qkv, [heads * d, 2 * heads * d], axis=-1)
    zeros = ((0, 0), (above, above), (left, left), (0, 0))
    k, v = np.pad(k, zeros), np.pad(v, zeros)
    out = empty_output(qkv, checked)
    for image, y, x in np.ndindex(len(qkv), qkv.shape[1] // rows, qkv.shape[2] // cols):
        own = image, slice(y * rows, (y + 1) * rows), slice(x * cols, (x + 1) * cols)
        seen = (
            image,
            slice(y * rows, (y + 1) * rows + 2 * above),
            slice(x * cols, (x + 1) * cols + 2 * left),
        )
        for head in range(heads):
            channels, values = slice(head * d, (head + 1) * d), slice(head * e, (head + 1) * e)
            queries = q[own][..., channels].reshape(-1, d)
            logits = checked["scale"] * (queries @ k[seen][..., channels].reshape(-1, d).T)
            if checked["bias"]:
                column = np.asarray(bias_table, dtype=np.float64)[:, head]
                logits = logits + _bias(column, rows, cols, rows + 2 * above, cols + 2 * left)
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            attended = weights @ v[seen][..., values].reshape(-1, e)
            out[own][..., values] = attended.reshape(rows, cols, e)
    return out


def _bias(column: Array, rows: int, cols: int, key_rows: int, key_cols: int) -> Array:
    """Return the bias (N, Nk): the entry for each offset of query and key, from their corners."""
    bias = np.empty((rows * cols, key_rows * key_cols))
    for a, b in np.ndindex(bias.shape):
        down = a // cols - b // key_cols + key_rows - 1
        right = a % cols - b % key_cols + key_cols - 1
        bias[a, b] = column[down * (cols + key_cols - 1) + right]
    return bias
