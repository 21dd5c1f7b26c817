"""Chroma planes, enlarged to the size of the luma and reduced again.

Chroma samples have the default positions of H.264 and HEVC: horizontally at every second luma
sample, vertically half-way between two.
"""

from __future__ import annotations

import numpy as np

from ...core.arrays import Array


def enlarge(plane: Array, size: tuple[int, ...], factors: tuple[int, int]) -> Array:
    """Enlarge a plane by linear interpolation, its edge repeated.

    Args:
        plane: (h, w).
        size: Height and width of the luma.
        factors: Subsampling of the plane, down and across: 1 or 2.
    """
    down, across = factors
    if down == 2:
        plane = _between(plane, (np.arange(size[0]) - 0.5) / 2.0, 0)
    if across == 2:
        plane = _between(plane, np.arange(size[1]) / 2.0, 1)
    return plane


def shrink(plane: Array, factors: tuple[int, int]) -> Array:
    """Reduce a plane by the mean around each sample, its edge repeated.

    Args:
        plane: (H, W).
        factors: Subsampling of the result, down and across: 1 or 2.
    """
    down, across = factors
    if down == 2:
        plane = np.pad(plane, ((0, plane.shape[0] % 2), (0, 0)), "edge")
        plane = (plane[0::2] + plane[1::2]) * np.float32(0.5)
    if across == 2:
        wide = np.pad(plane, ((0, 0), (1, 1 + plane.shape[1] % 2)), "edge")
        left, middle, right = wide[:, 0:-2:2], wide[:, 1:-1:2], wide[:, 2::2]
        plane = left * np.float32(0.25) + middle * np.float32(0.5) + right * np.float32(0.25)
    return plane


def _between(plane: Array, places: Array, axis: int) -> Array:
    """Return a plane at positions along an axis, interpolated between its samples."""
    last = plane.shape[axis] - 1
    floor = np.floor(places).astype(np.int64)
    shape = (-1, 1) if axis == 0 else (1, -1)
    share = (places - floor).astype(np.float32).reshape(shape)
    first = np.take(plane, np.clip(floor, 0, last), axis)
    second = np.take(plane, np.clip(floor + 1, 0, last), axis)
    mixed: Array = first * (1 - share) + second * share
    return mixed
