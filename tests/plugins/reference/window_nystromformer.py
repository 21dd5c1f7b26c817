"""``NystraWindowNystromformer`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nystra.plugins.operators.window_nystromformer.schema import SCHEMA
from reference.windows import (
    Array,
    empty_output,
    heads_in_windows,
    landmark_regions,
    landmarks,
    pseudoinverses,
    softmax,
)


def reference(qkv: npt.ArrayLike, **attributes: object) -> Array:
    """Return the row-normalized Nystrom attention in windows (Xiong et al., 2021, equation 14).

    With Q~ and K~ the landmarks of Q and K, and A+ the pseudoinverse of A = softmax(Q~ K~^T):
    softmax(Q K~^T) A+ softmax(Q~ K^T) V, of every head in every window.

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
    heads = list(heads_in_windows(qkv, checked))
    cells = [landmark_regions(head.regions, checked) for head in heads]
    q_marks = [landmarks(head.q, checked) for head in heads]
    k_marks = [landmarks(head.k, checked) for head in heads]
    cores = [
        softmax(scale * (q_m @ k_m.T), cell, cell)
        for q_m, k_m, cell in zip(q_marks, k_marks, cells, strict=True)
    ]
    inverses = pseudoinverses(cores, cells, checked)
    out = empty_output(qkv, checked)
    for head, cell, q_m, k_m, z in zip(heads, cells, q_marks, k_marks, inverses, strict=True):
        left = softmax(scale * (head.q @ k_m.T), head.regions, cell)
        upper = softmax(scale * (q_m @ head.k.T), cell, head.regions)
        out[head.place] = left @ (z @ (upper @ head.v))
    return out
