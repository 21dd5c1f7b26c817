"""Reuses tiles of a video that equal those of the previous frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ...core.arrays import Array
from .run_tiled import ImageFunction, run_batch


class RepeatedTiles:
    """Runs batches of tiles in turn, except those that equal the batch of the previous frame.

    Every frame has the same tiles in the same order. Tiles are compared bit by bit, their overlap
    included, so that reused results are exact. A batch is run whole or
    not at all: a network may round differently in a batch of another size.

    Attributes:
        reused: Tiles that were not run again, in all frames.
    """

    def __init__(self, most_bytes: int) -> None:
        """Begin without a frame.

        Args:
            most_bytes: Limit of the bytes of stored tiles and results; further tiles are run in
                each frame.
        """
        self.reused = 0
        self._most_bytes = most_bytes
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
        """Return the result of a batch in the previous frame, or None if it differed."""
        inputs, outputs = self._before.get(place, ([], []))
        if len(inputs) != len(tiles) or not all(map(_same_bits, inputs, tiles)):
            return None
        self.reused += len(tiles)
        return outputs

    def _run(self, place: int, function: ImageFunction, tiles: list[Array]) -> list[Array]:
        """Run a batch, and store it for the next frame if there is room."""
        self._bytes -= _bytes(*self._before.pop(place, ([], [])))
        outputs = run_batch(function, tiles)
        more = _bytes(tiles, outputs)
        if self._bytes + more <= self._most_bytes:
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
