"""``NystraWindowNystrom`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..landmark_windows_reference import Factors, window_nystrom_reference
from ..windows_reference import Array
from .schema import SCHEMA


def kernel(x: npt.ArrayLike, threshold: float) -> Array:
    """Return exp(min(x, threshold)) + max(x - threshold, 0), the kernel of PnP-Nystra."""
    x = np.asarray(x, dtype=np.float64)
    return np.asarray(np.exp(np.minimum(x, threshold)) + np.maximum(x - threshold, 0))


def combine(factors: Factors, z: Array, guard: float) -> Array:
    """Return the attention (N, e) of one head in one window.

    A guard that cannot be computed (t is no number, since Z overflowed) counts as touched.
    """
    left, _, upper, values = factors
    p = left @ z
    sums = upper.sum(axis=1, keepdims=True)
    num, den = p @ (upper @ values), p @ sums
    if guard == 0:
        return np.asarray(num / (den + 1e-12))
    mag = np.maximum(np.abs(p) @ sums, 1e-30)
    t = np.clip((den / mag - guard) / guard, 0, 1)
    weights = left / np.maximum(left.sum(axis=1, keepdims=True), 1e-30)
    soft = weights @ ((upper @ values) / np.maximum(sums, 1e-30))
    mixed = soft + t * (num / np.maximum(den, guard * mag) - soft)
    return np.asarray(np.where(t > 0, mixed, soft))


def reference(qkv: npt.ArrayLike, **attributes: object) -> Array:
    """Return the kernel Nystrom attention in windows.

    Args:
        qkv: (B, H, W, h(2d+e)).
        **attributes: those of the schema.

    Returns:
        (B, H, W, h e) in float64.

    Raises:
        NystraError: the schema refuses the attributes (a cut cell among them), or the map is no
            multiple of the window.
    """
    checked = SCHEMA.validate(attributes)
    threshold, guard = float(checked["threshold"]), float(checked["guard"])
    with np.errstate(all="ignore"):  # Z of an extreme matrix may overflow: the guard catches it
        return window_nystrom_reference(
            np.asarray(qkv, dtype=np.float64),
            checked,
            lambda logits, same: np.where(same, kernel(logits, threshold), 0.0),
            lambda factors, z: combine(factors, z, guard),
        )
