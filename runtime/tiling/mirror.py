"""Mirroring an image at its border as in the exported graphs: the edge is not repeated."""

from __future__ import annotations

import numpy as np

from ...core.arrays import Array


def mirror_to(image: Array, height: int, width: int) -> Array:
    """Mirror a (B, C, H, W) image at the bottom and right up to a size, as often as needed."""
    return mirrored_part(image, (0, max(height, image.shape[2])), (0, max(width, image.shape[3])))


def mirrored_part(image: Array, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
    """Return rows and columns of an image that continues mirrored at the bottom and right.

    Args:
        image: (B, C, H, W), not empty.
        rows: Start and end; the end may be beyond H.
        columns: Start and end; the end may be beyond W.

    Returns:
        (B, C, end - start, end - start): a view where nothing is mirrored.
    """
    part = image
    for axis, (start, end) in ((2, rows), (3, columns)):
        size = image.shape[axis]
        if end <= size:
            part = part[(slice(None),) * axis + (slice(start, end),)]
        else:
            period = max(2 * size - 2, 1)
            index = np.arange(start, end) % period
            part = np.take(part, np.minimum(index, period - index), axis=axis)
    return part
