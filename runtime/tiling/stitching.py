"""Blends the outputs of the tiles of one image, in any order.

Memory holds the output image only, and no finished tiles. The weights of a tile
are a product of one along each axis, and over all tiles they add up to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.errors import NystraError
from .tile_plan import Span, TilePlan

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
