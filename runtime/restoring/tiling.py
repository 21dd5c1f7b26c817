"""Running a network over a picture in tiles, so that memory does not grow with the picture.

All tiles have one shape. They start at multiples of the model's size multiple, so that the
attention windows of a tile lie where those of the untiled run lie: farther from a seam than the
network sees, the result is that of the untiled run up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...plugins.errors import NystraError

DEFAULT_OVERLAP = 32
"""Input pixels by which neighbouring tiles overlap, where nothing else is asked for."""

Array = npt.NDArray[Any]
ImageFunction = Callable[[Array], Array]


def run_tiled(
    function: ImageFunction,
    image: Array,
    tile: int | tuple[int, int] | None,
    overlap: int = DEFAULT_OVERLAP,
    scale: int = 1,
    multiple: int = 1,
    progress: Callable[[int, int], None] | None = None,
    *,
    fixed: bool = False,
    blend: str = "linear",
) -> npt.NDArray[np.float32]:
    """Run ``function`` over the image in overlapping tiles and blend the results.

    An image that fits into one tile is handed over whole and unpadded. Otherwise it is mirrored
    at the bottom and right up to the multiple, as the exported graph would do by itself, and
    the result is cropped.

    Args:
        function: (1, C, h, w) -> (1, C', h * scale, w * scale).
        image: (1, C, H, W).
        tile: Side of a tile in input pixels, or (height, width); rounded down to the multiple.
            None runs the image whole.
        overlap: By how many input pixels neighbouring tiles overlap at least.
        scale: Output pixels per input pixel and axis.
        multiple: The model's size multiple in input pixels; tiles start at multiples of it.
        progress: Called with (tiles done, tiles in all) after each tile.
        fixed: ``function`` takes images of exactly the tile's shape: smaller images are padded.
        blend: ``linear`` ramps over the overlap, or ``equal`` weights (the official SwinIR test
            procedure); either way the weights of each pixel add up to 1.

    Returns:
        (1, C', H * scale, W * scale) in float32.

    Raises:
        NystraError: The arguments contradict each other, or the output has an unexpected shape.
    """
    if image.ndim != 4 or image.shape[0] != 1 or 0 in image.shape:
        raise NystraError(f"got an image of shape {image.shape}, expected (1, C, H, W), not empty")
    if blend not in ("linear", "equal"):
        raise NystraError(f"the blend is {blend!r}, expected 'linear' or 'equal'")
    height, width = image.shape[2:]
    sides = (height, width) if tile is None else (tile, tile) if isinstance(tile, int) else tile
    if tile is None or (not fixed and height <= sides[0] and width <= sides[1]):
        result = _checked(function(image), image, scale)
        if progress is not None:
            progress(1, 1)
        return result
    step = 1 if fixed else multiple
    rows = tile_positions(_padded(height, sides[0], step, fixed), sides[0], overlap, step)
    columns = tile_positions(_padded(width, sides[1], step, fixed), sides[1], overlap, step)
    padded = mirror_to(image, rows[-1][1], columns[-1][1])
    row_weights = _weights(rows, scale, blend)
    column_weights = _weights(columns, scale, blend)
    total, done = len(rows) * len(columns), 0
    output: npt.NDArray[np.float32] | None = None
    for (top, bottom), down in zip(rows, row_weights, strict=True):
        for (left, right), across in zip(columns, column_weights, strict=True):
            part = np.ascontiguousarray(padded[:, :, top:bottom, left:right])
            got = _checked(function(part), part, scale)
            if output is None:
                output = np.zeros((1, got.shape[1], height * scale, width * scale), np.float32)
            place = output[:, :, top * scale : bottom * scale, left * scale : right * scale]
            weighted = got * (down[:, None] * across[None, :])
            place += weighted[:, :, : place.shape[2], : place.shape[3]]
            done += 1
            if progress is not None:
                progress(done, total)
    assert output is not None  # there is always a tile
    return output


def tile_positions(size: int, tile: int, overlap: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Return (start, end) of the tiles along one axis.

    Tiles start at 0, stride, 2 stride, ... while they end before the last one, which is shifted
    inward to end at the border.

    Args:
        size: Length of the axis, a multiple of ``multiple``.
        tile: Length of a tile, rounded down to the multiple.
        overlap: Least overlap of neighbours.
        multiple: Of which every start is a multiple.

    Raises:
        NystraError: The tile is smaller than the multiple, or the overlap leaves no stride.
    """
    side = tile // multiple * multiple
    if side < 1:
        raise NystraError(f"the tile is {tile} pixels, expected at least {max(multiple, 1)}")
    if side >= size:
        return [(0, size)]
    if overlap < 0:
        raise NystraError(f"the overlap is {overlap}, expected 0 or more")
    stride = (side - overlap) // multiple * multiple
    if stride < 1:
        raise NystraError(
            f"a tile of {side} pixels with an overlap of {overlap} leaves no step of {multiple}: "
            f"expected a tile of at least {overlap + multiple} or a smaller overlap"
        )
    starts = [*range(0, size - side, stride), size - side]
    return [(start, start + side) for start in starts]


def mirror_to(image: Array, height: int, width: int) -> Array:
    """Mirror a (1, C, H, W) image at the bottom and right up to a size, edge not repeated.

    Mirrored as often as needed, the form the exported graphs use inside.
    """
    padded = image
    for axis, target in ((2, height), (3, width)):
        size = padded.shape[axis]
        if target > size:
            period = max(2 * size - 2, 1)
            index = np.arange(target) % period
            padded = np.take(padded, np.minimum(index, period - index), axis=axis)
    return padded


def _padded(size: int, tile: int, multiple: int, fixed: bool) -> int:
    return max(size, tile) if fixed else -(-size // multiple) * multiple


def _checked(got: Array, part: Array, scale: int) -> npt.NDArray[np.float32]:
    size = (part.shape[2] * scale, part.shape[3] * scale)
    if got.ndim != 4 or got.shape[0] != part.shape[0] or got.shape[2:] != size:
        raise NystraError(
            f"the model made {got.shape} of {part.shape}, expected a picture of {size} for the "
            f"scale {scale}"
        )
    return np.asarray(got, dtype=np.float32)


def _weights(spans: list[tuple[int, int]], scale: int, blend: str) -> list[npt.NDArray[np.float32]]:
    """Return the weights of each tile along one axis; over all tiles they add up to 1."""
    weights = [np.ones((end - start) * scale, dtype=np.float64) for start, end in spans]
    if blend == "linear":
        for index, ((_, first_end), (second_start, _)) in enumerate(pairwise(spans)):
            shared = (first_end - second_start) * scale
            ramp = (np.arange(shared) + 0.5) / max(shared, 1)
            if shared:
                weights[index][-shared:] *= ramp[::-1]
                weights[index + 1][:shared] *= ramp
    total = np.zeros(spans[-1][1] * scale, dtype=np.float64)
    for (start, end), weight in zip(spans, weights, strict=True):
        total[start * scale : end * scale] += weight
    return [
        (weight / total[start * scale : end * scale]).astype(np.float32)
        for (start, end), weight in zip(spans, weights, strict=True)
    ]
