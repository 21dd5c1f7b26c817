"""Runs a network over an image in tiles, so that memory does not grow with the image.

It combines three parts that a server can use separately: choosing tiles (`plan_tiles`), running
them (in batches, of several images, again one by one if a batch failed), and blending the results
(`Stitcher`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.errors import NystraError
from .tile_plan import DEFAULT_OVERLAP, Stitcher, TilePlan, mirror_part, plan_tiles

ImageFunction = Callable[[Array], Array]
Batches = Callable[[ImageFunction, Iterable[list[Array]]], Iterator[list[Array]]]
"""Runs a function on batches of tiles, and yields the results in order."""


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
    batch: int = 1,
    batches: Batches | None = None,
) -> npt.NDArray[np.float32]:
    """Run ``function`` over the image in overlapping tiles and blend the results.

    Args:
        function: (B, C, h, w) -> (B, C', h * scale, w * scale), B at most ``batch``.
        image: (1, C, H, W).
        tile: As in `plan_tiles`.
        overlap: As in `plan_tiles`.
        scale: Output pixels per input pixel and axis.
        multiple: As in `plan_tiles`.
        progress: Called with (tiles done, total number of tiles) after each batch.
        fixed: As in `plan_tiles`.
        blend: As in `Stitcher`.
        batch: Tiles per run. A batch that fails is run again tile by tile.
        batches: How batches are run; None: one after the other, `in_turn`.

    Returns:
        (1, C', H * scale, W * scale) in float32.

    Raises:
        NystraError: The arguments contradict each other, or the output has an unexpected shape.
    """
    if image.ndim != 4 or image.shape[0] != 1 or 0 in image.shape:
        raise NystraError(f"got an image of shape {image.shape}, expected (1, C, H, W), not empty")
    if batch < 1:
        raise NystraError(f"the batch is {batch} tiles, expected 1 or more")
    plan = plan_tiles(image.shape[2:], tile, overlap, multiple, fixed=fixed)
    stitcher = Stitcher(plan, scale, blend)
    groups = [range(len(plan))[first : first + batch] for first in range(0, len(plan), batch)]
    cut_tile = partial(plan.cut, image)
    cut = (list(map(cut_tile, indices)) for indices in groups)
    for indices, outputs in zip(groups, (batches or in_turn)(function, cut), strict=True):
        for index, output in zip(indices, outputs, strict=True):
            stitcher.add(index, output)
        if progress is not None:
            progress(indices[-1] + 1, len(plan))
    return stitcher.image()


def in_turn(function: ImageFunction, batches: Iterable[list[Array]]) -> Iterator[list[Array]]:
    """Run batches of tiles one after the other; see `run_batch`."""
    return (run_batch(function, tiles) for tiles in batches)


def run_batch(function: ImageFunction, tiles: Sequence[Array]) -> list[Array]:
    """Run tiles of one shape at once; one by one if that fails.

    Args:
        function: (B, C, h, w) -> (B, C', h', w').
        tiles: (1, C, h, w) each, of one image or of several.

    Returns:
        (1, C', h', w') for each.

    Raises:
        NystraError: A tile fails by itself too, or the output has another number of images.
    """
    if len(tiles) == 1:
        return [function(tiles[0])]
    try:
        outputs = function(np.concatenate(list(tiles)))
    except (NystraError, MemoryError):
        return [function(tile) for tile in tiles]
    if outputs.shape[:1] != (len(tiles),):
        raise NystraError(f"the model returned {outputs.shape} for a batch of {len(tiles)} tiles")
    return [outputs[index : index + 1] for index in range(len(tiles))]


class RepeatedTiles:
    """Runs batches of tiles in turn, except those that equal the batch of the previous frame.

    Every frame has the same tiles in the same order. Tiles are compared bit by bit, their overlap
    included, so that reused results are exact. A batch is run whole or
    not at all: a network may round differently in a batch of another size.

    Attributes:
        reused: Tiles that were not run again, in all frames.
    """

    def __init__(self, max_bytes: int) -> None:
        """Begin without a frame.

        Args:
            max_bytes: Limit of the bytes of stored tiles and results; further tiles are run in
                each frame.
        """
        self.reused = 0
        self._max_bytes = max_bytes
        self._before: dict[int, tuple[list[Array], list[Array]]] = {}
        self._bytes = 0
        self._place = 0

    def begin_frame(self) -> None:
        """Start a frame with the next batch."""
        self._place = 0

    def __call__(
        self, function: ImageFunction, batches: Iterable[list[Array]]
    ) -> Iterator[list[Array]]:
        """Run batches of tiles; see `Batches`."""
        for tiles in batches:
            place, self._place = self._place, self._place + 1
            yield self._reuse(place, tiles) or self._run(place, function, tiles)

    def _reuse(self, place: int, tiles: list[Array]) -> list[Array] | None:
        inputs, outputs = self._before.get(place, ([], []))
        if len(inputs) != len(tiles) or not all(map(_same_bits, inputs, tiles)):
            return None
        self.reused += len(tiles)
        return outputs

    def _run(self, place: int, function: ImageFunction, tiles: list[Array]) -> list[Array]:
        self._bytes -= _bytes(*self._before.pop(place, ([], [])))
        outputs = run_batch(function, tiles)
        more = _bytes(tiles, outputs)
        if self._bytes + more <= self._max_bytes:
            for array in (*tiles, *outputs):
                array.flags.writeable = False  # a change would also change a later frame
            self._before[place] = tiles, outputs
            self._bytes += more
        return outputs


def _same_bits(one: Array, other: Array) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return np.array_equal(one.view(f"u{one.itemsize}"), other.view(f"u{other.itemsize}"))


def _bytes(*batches: list[Array]) -> int:
    return sum(array.nbytes for batch in batches for array in batch)


def fill_batch(function: Callable[..., Array], batch: int) -> Callable[..., Array]:
    """Return a function for 1 to ``batch`` images from one for exactly ``batch`` images.

    Args:
        function: (batch, ...) arrays, by position and name -> (batch, ...).
        batch: How many images the function takes.

    Returns:
        The function for fewer images: the last one is repeated, and the results of the repetitions
        are dropped. Every argument has as many images, or one for all.
    """

    def run_filled(image: Array, **others: Array) -> Array:
        count = image.shape[0]
        if count > batch:
            raise NystraError(f"got {count} images, the model takes {batch} per run")
        repeated = {name: _repeat(array, batch) for name, array in others.items()}
        return function(_repeat(image, batch), **repeated)[:count]

    return run_filled


def _repeat(images: Array, batch: int) -> Array:
    full: Array = np.take(images, np.minimum(np.arange(batch), images.shape[0] - 1), axis=0)
    return full


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
    across, complete_rows = len(plan.columns), 0
    groups = [range(len(plan))[first : first + batch] for first in range(0, len(plan), batch)]
    cut = (list(map(window.tile, indices)) for indices in groups)
    for indices, outputs in zip(groups, in_turn(function, cut), strict=True):
        for index, output in zip(indices, outputs, strict=True):
            stitcher.add(index, output)
        if progress is not None:
            progress(indices[-1] + 1, len(plan))
        complete = (indices[-1] + 1) // across
        end = plan.rows[complete][0] if complete < len(plan.rows) else plan.size[0]
        if end > complete_rows:
            complete_rows = end
            yield stitcher.take(end * scale)


class _Window:
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
            overlap = rows[:, :, begin - self._first :]
            rows = np.concatenate([overlap, self._read(missing)], axis=2)
            self._first = begin
        self._rows = rows
        place = (top - self._first, bottom - self._first)
        return np.ascontiguousarray(mirror_part(rows, place, columns))
