"""Runs a network over an image that comes and goes row by row, so that no image is in memory.

The tiles and their blending are those of `run_tiled`: the same tiles give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from .run_tiled import ImageFunction, in_turn
from .stitching import Stitcher
from .tile_plan import TilePlan, mirrored_part


def run_strips(
    function: ImageFunction,
    read: Callable[[int], Array],
    plan: TilePlan,
    scale: int = 1,
    progress: Callable[[int, int], None] | None = None,
    *,
    batch: int = 1,
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the result of a network from top to bottom.

    Args:
        function: (B, C, h, w) -> (B, C', h * scale, w * scale), B at most ``batch``.
        read: Returns the next rows of the image, (1, C, rows, W).
        plan: The tiles.
        scale: Output pixels per input pixel and axis.
        progress: Called with (tiles done, total number of tiles) after each batch.
        batch: Tiles per run.

    Yields:
        (C', rows, W * scale), as many rows as are complete.

    Raises:
        NystraError: The output has an unexpected shape.
    """
    window, stitcher = _Window(read, plan), Stitcher(plan, scale, strips=True)
    across, taken = len(plan.columns), 0
    groups = [range(len(plan))[first : first + batch] for first in range(0, len(plan), batch)]
    cut = ([window.tile(index) for index in indices] for indices in groups)
    for indices, outputs in zip(groups, in_turn(function, cut), strict=True):
        for index, output in zip(indices, outputs, strict=True):
            stitcher.add(index, output)
        if progress is not None:
            progress(indices[-1] + 1, len(plan))
        complete = (indices[-1] + 1) // across
        end = plan.rows[complete][0] if complete < len(plan.rows) else plan.size[0]
        if end > taken:
            taken = end
            yield stitcher.take(end * scale)


class _Window:
    """The rows of an image that the present tiles need."""

    def __init__(self, read: Callable[[int], Array], plan: TilePlan) -> None:
        self._read, self._plan = read, plan
        self._first = 0
        self._rows: Array | None = None
        self._mirrored = max(plan.rows[-1][1] - plan.size[0], 0)

    def tile(self, index: int) -> Array:
        """Return a tile as `TilePlan.cut` does; the tiles are asked for in their order."""
        (top, bottom), columns = self._plan.place(index)
        rows, end = self._rows, min(bottom, self._plan.size[0])
        if rows is None:
            rows = self._read(end)
        elif (missing := end - self._first - rows.shape[2]) > 0:
            begin = max(top - self._mirrored, self._first)
            kept = rows[:, :, begin - self._first :]
            rows = np.concatenate([kept, self._read(missing)], axis=2)
            self._first = begin
        self._rows = rows
        place = (top - self._first, bottom - self._first)
        return np.ascontiguousarray(mirrored_part(rows, place, columns))
