"""The test procedure of SwinIR's published figures (its test script)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nystra.core.errors import NystraError
from nystra.runtime.tasks.restoration.quality import official_pad
from nystra.runtime.tiling.run_tiled import ImageFunction, run_tiled


def official_procedure(
    function: ImageFunction,
    image: npt.NDArray[np.float32],
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
        overlap: Overlap of the tiles, in pixels.

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
