"""The tiles of an image.

All tiles have one shape. They start at multiples of the model's size multiple, so that the
attention windows of a tile are at the same positions as without tiles: farther from a seam than the
network sees, the result equals that of a run without tiles, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError

DEFAULT_OVERLAP = 32
"""Default overlap of neighboring tiles, in input pixels."""

Span = tuple[int, int]


@dataclass(frozen=True)
class TilePlan:
    """The tiles of one image, numbered row by row.

    Attributes:
        size: Height and width of the image.
        rows: (start, end) of the tiles from top to bottom; the last end may be beyond the image.
        columns: The same from left to right.
    """

    size: tuple[int, int]
    rows: tuple[Span, ...]
    columns: tuple[Span, ...]

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of every tile."""
        (top, bottom), (left, right) = self.place(0)
        return bottom - top, right - left

    def place(self, index: int) -> tuple[Span, Span]:
        """Return (start, end) of a tile's rows and columns.

        Args:
            index: From 0 to ``len(plan) - 1``.
        """
        row, column = divmod(index, len(self.columns))
        return self.rows[row], self.columns[column]

    def cut(self, image: Array, index: int) -> Array:
        """Return a tile of the image, mirrored beyond its borders.

        Args:
            image: (1, C, H, W) of the plan's size.
            index: Which tile.

        Returns:
            (1, C, h, w) of the plan's `shape`, contiguous.

        Raises:
            NystraError: The image has another size.
        """
        if image.ndim != 4 or image.shape[0] != 1 or image.shape[2:] != self.size:
            raise NystraError(f"got an image of shape {image.shape}, expected (1, C, *{self.size})")
        return np.ascontiguousarray(mirrored_part(image, *self.place(index)))


def plan_tiles(
    size: tuple[int, int],
    tile: int | tuple[int, int] | None,
    overlap: int = DEFAULT_OVERLAP,
    multiple: int = 1,
    *,
    fixed: bool = False,
) -> TilePlan:
    """Return the tiles of an image.

    An image that fits into one tile is one tile of its own size. Otherwise it is mirrored at the
    bottom and right up to the multiple, as in the exported graph.

    Args:
        size: Height and width of the image, at least 1.
        tile: Side of a tile in pixels, or (height, width), rounded down to the multiple. None: one
            tile for the whole image.
        overlap: Smallest overlap of neighboring tiles, in pixels.
        multiple: The model's size multiple in pixels; tiles start at multiples of it.
        fixed: Tiles are exactly as large as ``tile``: smaller images are mirrored up to that size.

    Raises:
        NystraError: The arguments contradict each other.
    """
    if min(size) < 1:
        raise NystraError(f"got an image of {size[1]}x{size[0]} pixels, expected at least 1x1")
    if overlap < 0:
        raise NystraError(f"`overlap` is {overlap}, expected 0 or more")
    sides = size if tile is None else (tile, tile) if isinstance(tile, int) else tile
    if tile is None or (not fixed and size[0] <= sides[0] and size[1] <= sides[1]):
        return TilePlan(size, ((0, size[0]),), ((0, size[1]),))
    rows, columns = (
        tile_positions(max(length, side), side, overlap)
        if fixed
        else tile_positions(-(-length // multiple) * multiple, side, overlap, multiple)
        for length, side in zip(size, sides, strict=True)
    )
    return TilePlan(size, tuple(rows), tuple(columns))


def even_tile(
    size: tuple[int, int], side: int, overlap: int, multiple: int = 1, minimum: int = 1
) -> tuple[int, int]:
    """Return the smallest tile that needs no more tiles than a square one.

    If a square tile is slightly smaller than the image, two are needed that overlap almost
    entirely: 2000 pixels need three overlapping tiles of 1000.

    Args:
        size: Height and width of the image.
        side: Side of the square tile.
        overlap: Smallest overlap of neighboring tiles, in pixels.
        multiple: The model's size multiple in pixels.
        minimum: Smallest side of a tile.

    Returns:
        Height and width, at most ``side``.
    """
    least = max(minimum, overlap + multiple)
    height, width = (_even(length, side, overlap, multiple, least) for length in size)
    return height, width


def _even(length: int, side: int, overlap: int, multiple: int, least: int) -> int:
    whole = -(-length // multiple) * multiple
    count = len(tile_positions(whole, side, overlap, multiple))
    if count == 1:
        return min(side, whole)
    even = max(-(-(whole + (count - 1) * overlap) // count), least)
    even = -(-even // multiple) * multiple
    while even < side and len(tile_positions(whole, even, overlap, multiple)) > count:
        even += multiple
    return min(even, side)


def tile_positions(size: int, tile: int, overlap: int, multiple: int = 1) -> list[Span]:
    """Return (start, end) of the tiles along one axis.

    Tiles start at 0, stride, 2 stride, ... while they end before the last one, which is shifted
    inward to end at the border.

    Args:
        size: Length of the axis, a multiple of ``multiple``.
        tile: Length of a tile, rounded down to the multiple.
        overlap: Least overlap of neighbors, 0 or more.
        multiple: Every start is a multiple of it.

    Raises:
        NystraError: The tile is smaller than the multiple, or the overlap leaves no stride.
    """
    side = tile // multiple * multiple
    if side < 1:
        raise NystraError(f"`tile` is {tile} pixels, expected at least {max(multiple, 1)}")
    if side >= size:
        return [(0, size)]
    stride = (side - overlap) // multiple * multiple
    if stride < 1:
        raise NystraError(
            f"a tile of {side} pixels with an overlap of {overlap} leaves less than {multiple} "
            f"new pixels: expected a tile of at least {overlap + multiple} or a smaller overlap"
        )
    starts = [*range(0, size - side, stride), size - side]
    return [(start, start + side) for start in starts]


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
