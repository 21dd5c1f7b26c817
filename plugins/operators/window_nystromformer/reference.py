"""``NystraWindowNystromformer`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..landmark_windows_reference import window_nystrom_reference
from ..windows_reference import Array
from .schema import SCHEMA


def _softmax(logits: Array, same: npt.NDArray[np.bool_]) -> Array:
    masked = logits - 100.0 * ~same
    weights = np.exp(masked - masked.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def reference(qkv: npt.ArrayLike, **attributes: object) -> Array:
    """Return the row-normalised Nystrom attention in windows (Xiong et al., 2021, equation 14).

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
    return window_nystrom_reference(
        np.asarray(qkv, dtype=np.float64),
        checked,
        _softmax,
        lambda factors, z: factors.left @ (z @ (factors.upper @ factors.values)),
    )
