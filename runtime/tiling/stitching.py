"""Blends the outputs of the tiles of one image, in any order.

Memory holds the output image only, and no finished tiles. The weights of a tile
are a product of one along each axis, and over all tiles they add up to 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.errors import NystraError
from .blending import blend_weights, linear_ramp
from .tile_plan import TilePlan


class Stitcher:
    """An image that is assembled from tiles, which may be added in any order.

    Floating point sums depend on their order: the same order gives the same bits.

    Attributes:
        plan: The tiles.
        scale: Output pixels per input pixel and axis.
    """

    def __init__(self, plan: TilePlan, scale: int = 1, blend: str = "linear") -> None:
        """Begin an empty image.

        Args:
            plan: The tiles.
            scale: Output pixels per input pixel and axis.
            blend: ``linear`` ramps over the overlap, or ``equal`` weights (the official SwinIR
                test procedure).

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

    def _blend(self, index: int, tile: npt.NDArray[np.float32]) -> None:
        scale = self.scale
        if self._image is None:
            height, width = self.plan.size
            shape = (1, tile.shape[0], height * scale, width * scale)
            self._image = np.zeros(shape, np.float32)
        row, column = divmod(index, len(self.plan.columns))
        (top, bottom), (left, right) = self.plan.place(index)
        region = self._image[0, :, top * scale : bottom * scale, left * scale : right * scale]
        weights = self._row_weights[row][:, None] * self._column_weights[column][None, :]
        region += (tile * weights)[:, : region.shape[1], : region.shape[2]]
