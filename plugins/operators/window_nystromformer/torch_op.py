"""``NystraWindowNystromformer`` in torch: plain and as ``torch.ops.nystra``."""

from __future__ import annotations

from torch import Tensor

from ..attention import nystromformer_attention
from ..window_geometry import WindowGeometry
from ..window_operator_torch import register
from ..windows_torch import (
    check_map,
    merge,
    partition,
    window_landmarks,
    window_regions,
)
from .schema import SCHEMA


def window_nystromformer(
    qkv: Tensor,
    *,
    heads: int,
    head_dim: int,
    value_dim: int,
    window_h: int,
    window_w: int,
    scale: float,
    shift_h: int = 0,
    shift_w: int = 0,
    mask: int = 0,
    landmark_rows: int = 4,
    landmark_cols: int = 4,
    iterations: int = 6,
    batch_init: int = 0,
) -> Tensor:
    """Return the row-normalised Nystrom attention in windows (B, H, W, h e), differentiable.

    Args:
        qkv: (B, H, W, h(2d+e)), packed q, k, v and each (head, channel).
        heads: h.
        head_dim: d.
        value_dim: e.
        window_h: rows of a window.
        window_w: columns of a window.
        scale: factor of q.k.
        shift_h: rows the map is rolled up before the partition.
        shift_w: columns the map is rolled left by.
        mask: 1: -100 is added between tokens of different Swin regions.
        landmark_rows: rows of landmarks in a window.
        landmark_cols: columns of landmarks in a window.
        iterations: steps of the pseudoinverse.
        batch_init: 1: its start value takes maxima over the whole batch.

    Raises:
        NystraError: the schema refuses the attributes (a cut cell among them), or the map does
            not fit them.
    """
    SCHEMA.validate(
        {
            "heads": heads,
            "head_dim": head_dim,
            "value_dim": value_dim,
            "window_h": window_h,
            "window_w": window_w,
            "shift_h": shift_h,
            "shift_w": shift_w,
            "mask": mask,
            "scale": scale,
            "landmark_rows": landmark_rows,
            "landmark_cols": landmark_cols,
            "iterations": iterations,
            "batch_init": batch_init,
        }
    )
    window, shift = (window_h, window_w), (shift_h, shift_w)
    geometry = WindowGeometry(heads, head_dim, value_dim, window, shift)
    check_map(SCHEMA.name, qkv, geometry)
    sides, landmarks = qkv.shape[1:-1], (landmark_rows, landmark_cols)
    q, k, v = partition(qkv, geometry)
    regions = None
    if mask and (shift_h or shift_w):
        regions = window_regions(sides, geometry, landmarks, qkv.device)
    out = nystromformer_attention(
        q,
        k,
        v,
        window_landmarks(q, geometry, *landmarks),
        window_landmarks(k, geometry, *landmarks),
        scale=scale,
        iterations=iterations,
        batch_init=batch_init,
        regions=regions,
    )
    return merge(out, sides, geometry)


register("window_nystromformer", SCHEMA, window_nystromformer)
