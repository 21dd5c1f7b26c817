"""``NystraWindowNystrom`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nystra.plugins.operators.window_nystrom.schema import SCHEMA
from reference.windows import (
    Array,
    Regions,
    empty_output,
    heads_in_windows,
    landmark_regions,
    landmarks,
    pseudoinverses,
)


def _kernel(x: Array, query_regions: Regions, key_regions: Regions, threshold: float) -> Array:
    """Return exp(min(x, threshold)) + max(x - threshold, 0), and 0 between two regions."""
    f = np.exp(np.minimum(x, threshold)) + np.maximum(x - threshold, 0)
    return np.asarray(np.where(query_regions[:, None] == key_regions, f, 0.0))


def _attention(left: Array, z: Array, upper: Array, v: Array, guard: float) -> Array:
    """Return (G_L Z G_U V) / (G_L Z G_U 1), guarded: (N, e).

    Where the ratio of the denominator to |G_L Z| G_U 1, the sum of its absolute terms, comes near
    the guard, the result is blended with the mean of the landmarks' attention, weighted by G_L, and
    replaced by it below the guard. NaN, from an overflow of Z, counts as below.
    """
    p, sums = left @ z, upper.sum(axis=1, keepdims=True)
    num, den = p @ (upper @ v), p @ sums
    if guard == 0:
        return np.asarray(num / (den + 1e-12))
    mag = np.maximum(np.abs(p) @ sums, 1e-30)
    t = np.clip((den / mag - guard) / guard, 0, 1)
    weights = left / np.maximum(left.sum(axis=1, keepdims=True), 1e-30)
    soft = weights @ ((upper @ v) / np.maximum(sums, 1e-30))
    mixed = soft + t * (num / np.maximum(den, guard * mag) - soft)
    return np.asarray(np.where(t > 0, mixed, soft))


@np.errstate(all="ignore")  # Z of an extreme matrix may overflow: the guard catches it
def reference(qkv: npt.ArrayLike, **attributes: object) -> Array:
    """Return the kernel Nystrom attention of PnP-Nystra in windows.

    With Q~ and K~ the landmarks of Q and K, f the kernel and Z the pseudoinverse of f(Q~ K~^T):
    G_L Z G_U V over its row sums, G_L = f(Q K~^T), G_U = f(Q~ K^T), of every head in every window.

    Args:
        qkv: (B, H, W, h(2d+e)).
        **attributes: Those of the schema.

    Returns:
        (B, H, W, h e) in float64.

    Raises:
        NystraError: The schema refuses the attributes (a cut cell among them), or the map is no
            multiple of the window.
    """
    checked = SCHEMA.validate(attributes)
    qkv, scale = np.asarray(qkv, dtype=np.float64), checked["scale"]
    threshold, guard = float(checked["threshold"]), float(checked["guard"])
    heads = list(heads_in_windows(qkv, checked))
    cells = [landmark_regions(head.regions, checked) for head in heads]
    q_marks = [landmarks(head.q, checked) for head in heads]
    k_marks = [landmarks(head.k, checked) for head in heads]
    cores = [
        _kernel(scale * (q_m @ k_m.T), cell, cell, threshold)
        for q_m, k_m, cell in zip(q_marks, k_marks, cells, strict=True)
    ]
    out = empty_output(qkv, checked)
    inverses = pseudoinverses(cores, cells, checked)
    for head, cell, q_m, k_m, z in zip(heads, cells, q_marks, k_marks, inverses, strict=True):
        left = _kernel(scale * (head.q @ k_m.T), head.regions, cell, threshold)
        upper = _kernel(scale * (q_m @ head.k.T), cell, head.regions, threshold)
        out[head.place] = _attention(left, z, upper, head.v, guard)
    return out
