"""The memory of a model, measured on a few small images, and the largest tile that fits into it.

A run needs the memory of a `MemoryLaw`, in addition to the image in float32 (input and output). At
most half of the free memory is used: a measured law is accurate within a factor of 1.5, and other
programs need memory too.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...core.errors import NystraError
from ..machine.memory import PeakMemory, available_memory, release_free_memory, resident_memory

_SHARE = 0.3
"""A quadratic part below this share of the largest measurement is attributed to allocation
steps."""

_TRUST = 4
"""The quadratic part that a file states is used unless this many times as much was measured: small
runs separate constant, linear and quadratic parts badly."""

_REACH = 4
"""A law is used up to this multiple of the measured pixels, where an undetected quadratic part
would not yet double the result."""


@dataclass(frozen=True)
class MemoryLaw:
    """The peak memory of a run: ``constant + n * linear + n^2 * square`` bytes for n pixels.

    Feature maps and windows grow with the pixels, attention over the whole image with their square.

    Attributes:
        linear: Bytes per pixel.
        square: Bytes per squared pixel.
        constant: Bytes that the first run allocates, whatever its size.
        reach: The most pixels for which the law is used.
    """

    linear: float
    square: float = 0.0
    constant: float = 0.0
    reach: float = math.inf

    def bytes(self, pixels: int) -> float:
        """Return the bytes of a run without the constant part."""
        return pixels * self.linear + pixels**2 * self.square

    def max_pixels(self, budget: float) -> int:
        """Return the most pixels whose run fits into a budget, within the reach."""
        if self.square > 0:
            root = math.sqrt(self.linear**2 + 4.0 * self.square * budget)
            pixels = (root - self.linear) / (2.0 * self.square)
        else:
            pixels = budget / self.linear if self.linear > 0 else math.inf
        return int(min(pixels, self.reach, 1e15))


def fit_law(
    points: Sequence[tuple[int, int]], *, known_square: float = 0.0, linear_only: bool = False
) -> MemoryLaw:
    """Return the law through measurements.

    Args:
        points: (pixels, peak bytes above what was there before any run), in ascending order; from a
            single one the worst case is assumed.
        known_square: The quadratic part that the model file states; 0 if none.
        linear_only: The model is known to have no quadratic part.
    """
    (first, first_bytes), (last, last_bytes) = points[0], points[-1]
    if len(points) == 1:
        if linear_only:
            return MemoryLaw(last_bytes / last)
        return MemoryLaw(0.0, max(last_bytes / last**2, known_square), 0.0, _REACH * last)
    square = 0.0 if linear_only else _square(points)
    if known_square > 0 and square <= _TRUST * known_square:
        square = min(known_square, last_bytes / last**2)
    elif square <= _SHARE * last_bytes / last**2:
        square = 0.0
    slope = max((last_bytes - first_bytes) / (last - first), 0.0)
    linear = max(slope - square * (first + last), 0.0)
    constant = max(first_bytes - linear * first - square * first**2, 0.0)
    return MemoryLaw(linear, square, constant, math.inf if linear_only else _REACH * last)


def _square(points: Sequence[tuple[int, int]]) -> float:
    """Return the growth of the slope, from three points, or from two without a constant part.

    Of the results for every point between the first and the last this is the median: allocation
    steps of one small run bend the curve there alone, a quadratic part bends it everywhere.
    """
    (first, first_bytes), (last, last_bytes) = points[0], points[-1]
    if len(points) == 2:
        return (last_bytes / last - first_bytes / first) / (last - first)
    bends = [
        (last_bytes - between) / (last - middle) - (between - first_bytes) / (middle - first)
        for middle, between in points[1:-1]
    ]
    return statistics.median(bends) / (last - first)


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
        bytes_kept: Bytes of the trial runs that the process keeps for the next run.
        quiet: Lock that is held while measuring, and by other code that needs much memory.
    """

    def __init__(
        self, known_square: float = 0.0, *, linear_only: bool = False, compiles: bool = False
    ) -> None:
        self.known_square = known_square
        self.linear_only = linear_only
        self.compiles = compiles
        self.law: MemoryLaw | None = None
        self.bytes_kept = 0
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
                self.law = self._measure(run, pixels, budget, multiple, minimum)
            return self.law

    def _measure(
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
            peak, above = max((watch.peak or 0) - self._before, 0), watch.above or 0
            highest = (count, peak)
            if above > _FRESH * peak:
                points.append((count, math.isqrt(above * peak)))
        self.bytes_kept = max((resident_memory() or 0) - self._before, 0)
        if not points and highest[1] == 0:
            return None
        return fit_law(
            points or [highest], known_square=self.known_square, linear_only=self.linear_only
        )


ASSUMED = MemoryLaw(40_960.0)
"""Bytes per pixel that are assumed without a measurement: a safe value for a SwinIR-M (180
channels, 6 heads) whose attention runs as its ONNX body at window 32 (24 KiB of scores per pixel,
and the feature maps)."""

ASSUMED_SQUARE = 12.0
"""Bytes per squared pixel that no network exceeds unless its file states it."""

_SMALLEST, _SMALLEST_SQUARE = 64, 24
_MAX_SQUARE = 2 << 30
"""Bytes for a tile whose memory grows with the square of its pixels, as its time does."""


def free_memory(bytes_kept: int = 0, limit: int | None = None) -> int:
    """Return the bytes that a run may use.

    Args:
        bytes_kept: Bytes of earlier runs that this process keeps for reuse.
        limit: Memory limit of this process in bytes; None is the available memory.

    Raises:
        NystraError: The process already uses more than that.
    """
    free = available_memory() + bytes_kept
    resident = resident_memory()
    if limit is None or resident is None:
        return free
    if limit <= resident - bytes_kept:
        raise NystraError(
            f"the process takes {(resident - bytes_kept) >> 20} MiB with the model loaded, and the "
            f"limit is {limit >> 20} MiB: raise `max_memory`; see docs/running.md"
        )
    return min(free, limit - resident + bytes_kept)


def tile_budget(size: tuple[int, int], channels: int, free: int) -> int:
    """Return the bytes that a run may use in addition to an image and its result.

    Args:
        size: Height and width of the image in pixels.
        channels: Float32 numbers per input pixel: channels of the input, and twice those of the
            output at its scale.
        free: Bytes of free memory.

    Raises:
        NystraError: Not even the image itself and its result fit.
    """
    images = image_bytes(size, channels)
    if images > free:
        raise NystraError(
            f"an image of {size[1]}x{size[0]} needs {images >> 20} MiB for itself and its "
            f"result, and {free >> 20} MiB are available: cut it into parts first; "
            "see docs/running.md"
        )
    return max((free - images) // 2, 1)


def image_bytes(size: tuple[int, int], channels: int) -> int:
    """Return the bytes of an image and its result; arguments as of `tile_budget`."""
    return size[0] * size[1] * 4 * channels


def automatic_tile(
    size: tuple[int, int],
    law: MemoryLaw,
    budget: int,
    *,
    multiple: int = 1,
    overlap: int = 0,
    minimum: int = 1,
) -> int | None:
    """Return the side of the largest square tile that a budget allows.

    Args:
        size: Height and width of the image in pixels.
        law: The memory of a run.
        budget: Bytes that a run may use.
        multiple: The model's size multiple; the tile is one of its multiples.
        overlap: Overlap of the tiles; the tile is at least twice that (or one multiple more), and
            64 pixels, or 24 where memory grows with the square.
        minimum: The model's smallest side.

    Returns:
        A side in input pixels, or None if the image can run whole.

    Raises:
        NystraError: The smallest tile takes more than twice the budget.
    """
    pixels = law.max_pixels(min(budget, _MAX_SQUARE) if law.square else budget)
    if size[0] * size[1] <= pixels:
        return None
    lower = _SMALLEST_SQUARE if law.square else _SMALLEST
    smallest = max(lower, minimum, 2 * overlap, overlap + multiple)
    smallest = -(-smallest // multiple) * multiple
    side = max(math.isqrt(pixels) // multiple * multiple, smallest)
    run = (min(side, size[0]), min(side, size[1]))
    refuse_too_large(run, run[0] * run[1], law, 2 * budget, "a tile")
    return side


def refuse_too_large(
    size: tuple[int, int], pixels: int, law: MemoryLaw, free: int, what: str
) -> None:
    """Raise NystraError if a run does not fit into the memory.

    Args:
        size: Height and width of what is run, in pixels.
        pixels: The larger number of its own pixels and those of its reference.
        law: The memory of a run.
        free: Bytes of free memory.
        what: ``an image`` or ``a tile``.
    """
    needed = int(law.bytes(pixels))
    if needed > free:
        advice = (
            "use a smaller one, or export the model with an attention that grows less "
            "(nystra-export --attn psal)"
            if law.square
            else "use a smaller one"
        )
        raise NystraError(
            f"this model needs about {needed >> 20} MiB for {what} of {size[1]}x{size[0]}, and "
            f"{free >> 20} MiB are available: {advice}; see docs/running.md"
        )
