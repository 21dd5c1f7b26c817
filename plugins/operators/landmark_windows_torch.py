"""The common part of both Nystrom forms in torch: the problem of every head and window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .window_geometry import WindowGeometry
from .windows_torch import partition, window_landmarks, window_regions


def landmark_problem(
    qkv: Tensor, geometry: WindowGeometry, attributes: Mapping[str, float]
) -> dict[str, Any]:
    """Return the arguments of an attention with landmarks, one problem per head and window.

    Args:
        qkv: (B, H, W, h(2d+e)), checked.
        geometry: How it is cut.
        attributes: The checked attributes of both forms.

    Returns:
        q, k, v, q_landmarks, k_landmarks, regions, scale, iterations and batch_init, as
        ``attention_torch.nystrom_terms`` takes them.
    """
    landmarks = int(attributes["landmark_rows"]), int(attributes["landmark_cols"])
    q, k, v = partition(qkv, geometry)
    regions = None
    if geometry.masked and geometry.shifted:
        regions = window_regions(qkv.shape[1:-1], geometry, landmarks, qkv.device)
    return {
        "q": q,
        "k": k,
        "v": v,
        "q_landmarks": window_landmarks(q, geometry, *landmarks),
        "k_landmarks": window_landmarks(k, geometry, *landmarks),
        "regions": regions,
        "scale": geometry.scale,
        "iterations": int(attributes["iterations"]),
        "batch_init": int(attributes["batch_init"]),
    }
