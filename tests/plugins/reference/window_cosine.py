"""``NystraWindowCosine`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nystra.plugins.operators.window_cosine.schema import SCHEMA
from reference.windows import Array, empty_output, heads_in_windows, position_bias, softmax


def reference(
    qkv: npt.ArrayLike, bias_table: npt.ArrayLike, logit_scale: npt.ArrayLike, **attributes: object
) -> Array:
    """Return softmax(scale s cos(Q, K) + bias) V of every head in every window (arXiv 2111.09883).

    Args:
        qkv: (B, H, W, h(2d+e)).
        bias_table: ((2wh-1)(2ww-1), h); any one element where ``bias`` is 0.
        logit_scale: (h), s.
        **attributes: Those of the schema.

    Returns:
        (B, H, W, h e) in float64.

    Raises:
        NystraError: The schema refuses the attributes, or the map is not a multiple of the window.
    """
    checked = SCHEMA.validate(attributes)
    qkv = np.asarray(qkv, dtype=np.float64)
    table = np.asarray(bias_table, dtype=np.float64)
    scales = float(checked["scale"]) * np.asarray(logit_scale, dtype=np.float64)
    window = int(checked["window_h"]), int(checked["window_w"])
    least = float(checked["epsilon"])
    between = -np.inf if checked["mask"] == 2 else -100.0
    out = empty_output(qkv, checked)
    for head in heads_in_windows(qkv, checked):
        q_norms, k_norms = (
            np.maximum(np.sqrt((tokens**2).sum(-1)), least) for tokens in (head.q, head.k)
        )
        cosines = (head.q @ head.k.T) / np.outer(q_norms, k_norms)
        bias = position_bias(table, head.number, *window) if checked["bias"] else 0.0
        logits = scales[head.number] * cosines + bias
        out[head.place] = softmax(logits, head.regions, head.regions, between) @ head.v
    return out
