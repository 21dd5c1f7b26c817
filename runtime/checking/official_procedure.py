"""The procedure by which the published figures of SwinIR were made (its test script)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...plugins.errors import NystraError
from ..restoring.tiling import ImageFunction, run_tiled

Array = npt.NDArray[Any]


def official_pad(image: Array, window: int) -> Array:
    """Mirror an image at the bottom and right to the size of the official test procedure.

    Each side becomes (side // window + 1) * window: something is always added, even to a side
    that is a multiple. The edge row is repeated: ... y z | z y ...

    Args:
        image: (..., H, W), each side at least 1.
        window: The network's window in pixels.

    Returns:
        A new array (..., H', W').

    Raises:
        NystraError: The image is empty or the window is not positive.
    """
    if window < 1 or image.ndim < 2 or 0 in image.shape:
        raise NystraError(f"cannot pad an image of shape {image.shape} to windows of {window}")
    padded = image
    for axis in (-2, -1):
        size = image.shape[axis]
        index = np.arange((size // window + 1) * window) % (2 * size)
        padded = np.take(padded, np.minimum(index, 2 * size - 1 - index), axis=axis)
    return padded


def official_procedure(
    function: ImageFunction,
    image: Array,
    window: int,
    scale: int,
    tile: int | None = None,
    overlap: int = 32,
) -> npt.NDArray[np.float32]:
    """Run a network as the official test script of SwinIR does: pad, run, crop.

    Args:
        function: (1, C, h, w) -> (1, C', h * scale, w * scale).
        image: (1, C, H, W).
        window: The network's window in pixels.
        scale: Output pixels per input pixel and axis.
        tile: Side of the tiles, a multiple of the window, reduced to the smaller side of the
            padded image; None runs it whole. Overlapping outputs are averaged with equal weights.
        overlap: Of the tiles, in pixels.

    Returns:
        (1, C', H * scale, W * scale) in float32.

    Raises:
        NystraError: The tile is no multiple of the window.
    """
    if tile is not None and tile % window:
        raise NystraError(f"the tile is {tile} pixels, expected a multiple of the window {window}")
    padded = official_pad(image, window)
    side = None if tile is None else min(tile, *padded.shape[2:])
    output = run_tiled(function, padded, side, overlap, scale, blend="equal")
    return output[:, :, : image.shape[2] * scale, : image.shape[3] * scale]
