"""``NystraWindowSoftmax`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..windows_reference import Array, split_heads, windows
from .schema import SCHEMA


def _bias(table: Array, head: int, window_h: int, window_w: int) -> Array:
    """Return the bias (N, N) of a head: the table's entry for each offset of query and key."""
    n = window_h * window_w
    bias = np.empty((n, n))
    for a in range(n):
        for b in range(n):
            rows = a // window_w - b // window_w + window_h - 1
            cols = a % window_w - b % window_w + window_w - 1
            bias[a, b] = table[rows * (2 * window_w - 1) + cols, head]
    return bias


def reference(qkv: npt.ArrayLike, bias_table: npt.ArrayLike, **attributes: object) -> Array:
    """Return exact window attention.

    Args:
        qkv: (B, H, W, h(2d+e)).
        bias_table: ((2wh-1)(2ww-1), h); any one element where ``bias`` is 0.
        **attributes: those of the schema.

    Returns:
        (B, H, W, h e) in float64.

    Raises:
        NystraError: the schema refuses the attributes, or the map is no multiple of the window.
    """
    checked = SCHEMA.validate(attributes)
    qkv = np.asarray(qkv, dtype=np.float64)
    table = np.asarray(bias_table, dtype=np.float64)
    heads, e = int(checked["heads"]), int(checked["value_dim"])
    out = np.empty((*qkv.shape[:3], heads * e))
    biases = [
        _bias(table, head, int(checked["window_h"]), int(checked["window_w"]))
        if checked["bias"]
        else 0.0
        for head in range(heads)
    ]
    for image, result in zip(qkv, out, strict=True):
        for window in windows(image.shape[0], image.shape[1], checked):
            apart = window.regions[:, None] != window.regions[None, :]
            tokens = image[window.rows, window.cols]
            for head, (q, k, v) in enumerate(split_heads(tokens, checked)):
                logits = checked["scale"] * (q @ k.T) + biases[head] - 100.0 * apart
                weights = np.exp(logits - logits.max(axis=1, keepdims=True))
                weights /= weights.sum(axis=1, keepdims=True)
                result[window.rows, window.cols, head * e : (head + 1) * e] = weights @ v
    return out
