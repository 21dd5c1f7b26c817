"""``NystraWindowSoftmax`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nystra.plugins.operators.window_softmax.schema import SCHEMA
from reference.windows import Array, empty_output, heads_in_windows, position_bias, softmax


def reference(qkv: npt.ArrayLike, bias_table: npt.ArrayLike, **attributes: object) -> Array:
    """Return exact window attention, softmax(scale Q K^T + bias) V of every head in every window.

    Args:
        qkv: (B, H, W, h(2d+e)).
        bias_table: ((2wh-1)(2ww-1), h); any one element where ``bias`` is 0.
        **attributes: Those of the schema.

    Returns:
        (B, H, W, h e) in float64.

    Raises:
        NystraError: The schema refuses the attributes, or the map is not a multiple of the window.
    """
    checked = SCHEMA.validate(attributes)
    qkv = np.asarray(qkv, dtype=np.float64)
    table = np.asarray(bias_table, dtype=np.float64)
    window = int(checked["window_h"]), int(checked["window_w"])
    bias = [
        position_bias(table, head, *window) if checked["bias"] else 0.0
        for head in range(int(checked["heads"]))
    ]
    between = -np.inf if checked["mask"] == 2 else -100.0
    out = empty_output(qkv, checked)
    for head in heads_in_windows(qkv, checked):
        logits = checked["scale"] * (head.q @ head.k.T) + bias[head.number]
        out[head.place] = softmax(logits, head.regions, head.regions, between) @ head.v
    return out
