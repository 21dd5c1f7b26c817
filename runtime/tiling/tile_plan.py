"""The tiles of an image, and the blending of their outputs.

All tiles have one shape. They start at multiples of the model's size multiple, so that the
attention windows of a tile are at the same positions as without tiles: farther from a seam than the
network sees, the result equals that of a run without tiles, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

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
        return np.ascontiguousarray(mirror_part(image, *self.place(index)))


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
    sides = (tile, tile) if isinstance(tile, int) else tile or size
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
    minimum = max(minimum, overlap + multiple)
    height, width = (_even(length, side, overlap, multiple, minimum) for length in size)
    return height, width


def _even(length: int, side: int, overlap: int, multiple: int, minimum: int) -> int:
    padded = -(-length // multiple) * multiple
    count = len(tile_positions(padded, side, overlap, multiple))
    if count == 1:
        return min(side, padded)
    even = max(-(-(padded + (count - 1) * overlap) // count), minimum)
    even = -(-even // multiple) * multiple
    while even < side and len(tile_positions(padded, even, overlap, multiple)) > count:
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
    return mirror_part(image, (0, max(height, image.shape[2])), (0, max(width, image.shape[3])))


def mirror_part(image: Array, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
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


Ramp = Callable[[int], npt.NDArray[np.float64]]
"""Takes the number of pixels that two neighbors share; returns the weights of the second one
there."""


def linear_ramp(shared: int) -> npt.NDArray[np.float64]:
    """Return a line up from 0 to 1."""
    return (np.arange(shared) + 0.5) / shared


def blend_weights(
    spans: Sequence[Span], ramp: Ramp | None = linear_ramp, scale: int = 1
) -> list[npt.NDArray[np.float32]]:
    """Return the weights of each span along an axis; over all of them they add up to 1.

    Args:
        spans: First place and the one after the last, in their order.
        ramp: How one fades into the next; None: equal weights.
        scale: Positions of the result per position of a span.
    """
    weights = [np.ones((end - start) * scale, np.float64) for start, end in spans]
    for index, ((_, first_end), (second_start, _)) in enumerate(pairwise(spans)):
        shared = (first_end - second_start) * scale
        if ramp is not None and shared > 0:
            rising = ramp(shared)
            weights[index][-shared:] *= rising[::-1]
            weights[index + 1][:shared] *= rising
    total = np.zeros(spans[-1][1] * scale, np.float64)
    for (start, end), weight in zip(spans, weights, strict=True):
        total[start * scale : end * scale] += weight
    return [
        (weight / total[start * scale : end * scale]).astype(np.float32)
        for (start, end), weight in zip(spans, weights, strict=True)
    ]


class Stitcher:
    """An image that is assembled from tiles, which may be added in any order.

    Floating point sums depend on their order: the same order gives the same bits.

    Attributes:
        plan: The tiles.
        scale: Output pixels per input pixel and axis.
    """

    def __init__(
        self, plan: TilePlan, scale: int = 1, blend: str = "linear", *, strips: bool = False
    ) -> None:
        """Begin an empty image.

        Args:
            plan: The tiles.
            scale: Output pixels per input pixel and axis.
            blend: ``linear`` ramps over the overlap, or ``equal`` weights (the official SwinIR
                test procedure).
            strips: The tiles come row by row, and finished rows are taken by `take`.

        Raises:
            NystraError: The blend is unknown.
        """
        if blend not in ("linear", "equal"):
            raise NystraError(f"the blend is {blend!r}, expected 'linear' or 'equal'")
        self.plan = plan
        self.scale = scale
        ramp = linear_ramp if blend == "linear" else None
        self._row_weights = blend_weights(plan.rows, ramp, scale)
        self._column_weights = blend_weights(plan.columns, ramp, scale)
        self._missing = set(range(len(plan)))
        self._image: npt.NDArray[np.float32] | None = None
        self._strips, self._first = strips, 0

    def add(self, index: int, tile: Array) -> None:
        """Add the network's output for one tile.

        Args:
            index: Index of the tile in the plan.
            tile: (1, C', h * scale, w * scale), or the same without the leading 1.

        Raises:
            NystraError: The tile was added already, or has another shape.
        """
        if index not in self._missing:
            raise NystraError(f"tile {index} of {len(self.plan)} is unknown or was added already")
        got = tile[0] if tile.ndim == 4 and tile.shape[0] == 1 else tile
        expected = tuple(side * self.scale for side in self.plan.shape)
        before = self._image
        if got.ndim != 3 or got.shape[1:] != expected:
            raise NystraError(
                f"the model returned {tile.shape} for a tile of {self.plan.shape} pixels, "
                f"expected (1, C, *{expected}) for the scale {self.scale}"
            )
        if before is not None and before.shape[1] != got.shape[0]:
            raise NystraError(
                f"the model returned {got.shape[0]} channels for a tile and {before.shape[1]} "
                "before"
            )
        if len(self.plan) == 1:
            height, width = (side * self.scale for side in self.plan.size)
            self._image = np.asarray(got, dtype=np.float32)[None, :, :height, :width]
        else:
            self._blend(index, np.asarray(got, dtype=np.float32))
        self._missing.discard(index)

    def image(self) -> npt.NDArray[np.float32]:
        """Return the whole image, (1, C', H * scale, W * scale).

        Raises:
            NystraError: Tiles are missing.
        """
        if self._missing or self._image is None:
            raise NystraError(
                f"{len(self._missing)} of {len(self.plan)} tiles are missing, expected all of them"
            )
        return self._image

    def take(self, end: int) -> npt.NDArray[np.float32]:
        """Return the rows above an output row that were not taken yet, and forget them.

        Args:
            end: The row; no tile that is still missing reaches above it.

        Returns:
            (C', rows, W * scale).
        """
        image, rows = self._image, end - self._first
        if image is None or rows > image.shape[2]:
            raise ValueError(f"the rows up to {end} are not complete")
        self._image, self._first = image[:, :, rows:].copy(), end
        return image[0, :, :rows]

    def _blend(self, index: int, tile: npt.NDArray[np.float32]) -> None:
        scale = self.scale
        row, column = divmod(index, len(self.plan.columns))
        (top, bottom), (left, right) = self.plan.place(index)
        height, width = self.plan.size
        end = (min(bottom, height) if self._strips else height) * scale
        rows = 0 if self._image is None else self._image.shape[2]
        if self._image is None or self._first + rows < end:
            shape = (1, tile.shape[0], end - self._first, width * scale)
            larger = np.zeros(shape, np.float32)
            if self._image is not None:
                larger[:, :, :rows] = self._image
            self._image = larger
        above = top * scale - self._first
        region = self._image[
            0, :, above : above + (bottom - top) * scale, left * scale : right * scale
        ]
        weights = self._row_weights[row][:, None] * self._column_weights[column][None, :]
        region += (tile * weights)[:, : region.shape[1], : region.shape[2]]
