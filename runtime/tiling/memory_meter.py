"""Measures the memory of a model by running it on a few small images."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from ..machine.memory import PeakMemory, release_free_memory, resident_memory
from .memory_law import MemoryLaw, fit_law

_SIDES = (32, 48, 64, 96, 128, 192, 256, 384)
_CLEAR, _ENOUGH = 64 << 20, 256 << 20
_FRESH = 0.5
"""A run that grows the process by a smaller share of its peak reused memory of earlier runs, so
that its growth is too small. For the others the geometric mean of growth and peak is within 1.42 of
what the run took."""


class MemoryMeter:
    """The memory of a model, measured once, and again only if larger sizes are needed.

    The resident memory of the whole process is watched: other threads that allocate memory at the
    same time distort the measurement.

    Attributes:
        known_square: Bytes per squared pixel that the model file states.
        linear_only: The model is known to have no such part.
        compiles: The first run allocates memory for a compiler, which stays and does not belong to
            a run.
        law: The result, or None so far.
        kept: Bytes of the trial runs that the process keeps for the next run.
        quiet: Lock that is held while measuring, and by other code that needs much memory.
    """

    def __init__(
        self, known_square: float = 0.0, *, linear_only: bool = False, compiles: bool = False
    ) -> None:
        """Begin without measurements, before the model runs for the first time."""
        self.known_square = known_square
        self.linear_only = linear_only
        self.compiles = compiles
        self.law: MemoryLaw | None = None
        self.kept = 0
        self._before = resident_memory() or 0
        self.quiet = threading.Lock()

    def measure(
        self,
        run: Callable[[int], object],
        pixels: int,
        budget: float,
        *,
        multiple: int = 1,
        minimum: int = 1,
    ) -> MemoryLaw | None:
        """Return the memory law, or None if the system does not report memory.

        Args:
            run: Runs the model on a square image of this side.
            pixels: Pixels of the image: except for the first three, no trial uses more than an
                eighth of them, or half if the memory so far was too small to determine a law.
            budget: Limit of the bytes of a trial: one that would exceed it with quadratic growth is
                not run.
            multiple: Sides are multiples of it.
            minimum: The smallest side.
        """
        if self.law is not None:
            return self.law
        with self.quiet:
            if self.law is None:
                self.law = self._measured(run, pixels, budget, multiple, minimum)
            return self.law

    def _measured(
        self,
        run: Callable[[int], object],
        pixels: int,
        budget: float,
        multiple: int,
        minimum: int,
    ) -> MemoryLaw | None:
        sides = sorted({-(-max(side, minimum) // multiple) * multiple for side in _SIDES})
        points: list[tuple[int, int]] = []
        highest = (1, 0)
        if self.compiles:
            run(sides[0])
            release_free_memory()
            self._before = resident_memory() or 0
        for side in sides:
            count = side * side
            if highest[1] * (count / highest[0]) ** 2 > budget:
                break
            if len(points) > 2:
                growth = points[-1][1] - points[0][1]
                dear = 8 * count > pixels if growth > _CLEAR else 2 * count > pixels
                if growth > _ENOUGH or dear:
                    break
            release_free_memory()
            watch = PeakMemory()
            if not watch.exact or watch.before is None:
                return None
            run(side)
            most, least = max((watch.peak or 0) - self._before, 0), watch.above or 0
            highest = (count, most)
            if least > _FRESH * most:
                points.append((count, math.isqrt(least * most)))
        self.kept = max((resident_memory() or 0) - self._before, 0)
        if not points and highest[1] == 0:
            return None
        return fit_law(
            points or [highest], known_square=self.known_square, linear_only=self.linear_only
        )
