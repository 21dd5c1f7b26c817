"""How the memory of a run grows with the pixels of its image.

A run of n pixels takes ``constant + n * linear + n^2 * square`` bytes at its peak: maps and
windows grow with the pixels, attention that sees the whole image with their square. The constant
is taken once, by the first run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_SHARE = 0.3
"""A quadratic part below this share of the largest measurement is attributed to allocation
steps."""

_TRUST = 4
"""The quadratic part that a file states is used unless this many times as much was measured: small
runs separate constant, linear and quadratic parts badly."""

_REACH = 4
"""A law is used up to this many times the measured pixels: there, an undetected quadratic part does
not yet double its result."""


@dataclass(frozen=True)
class MemoryLaw:
    """The peak memory of a run.

    Attributes:
        linear: Bytes a pixel.
        square: Bytes over the square of the pixels.
        constant: Bytes that the first run takes, whatever its size.
        reach: The most pixels it may be believed for.
    """

    linear: float
    square: float = 0.0
    constant: float = 0.0
    reach: float = math.inf

    def bytes(self, pixels: int) -> float:
        """Return what a run takes on top of the constant part."""
        return pixels * self.linear + pixels**2 * self.square

    def most_pixels(self, budget: float) -> int:
        """Return the most pixels whose run takes no more than a budget, within the reach."""
        if self.square > 0:
            root = math.sqrt(self.linear**2 + 4.0 * self.square * budget)
            most = (root - self.linear) / (2.0 * self.square)
        else:
            most = budget / self.linear if self.linear > 0 else math.inf
        return int(min(most, self.reach, 1e15))


def fit_law(
    points: Sequence[tuple[int, int]], *, known_square: float = 0.0, linear_only: bool = False
) -> MemoryLaw:
    """Return the law through measurements.

    Args:
        points: (pixels, peak bytes above what was there before any run), pixels growing; of
            a single one the worst is assumed.
        known_square: What the model file says of the square; 0 if it says nothing.
        linear_only: The model is known to have no square, so that there is nothing to miss.
    """
    (first, least), (last, most) = points[0], points[-1]
    if len(points) == 1:
        if linear_only:
            return MemoryLaw(most / last)
        return MemoryLaw(0.0, max(most / last**2, known_square), 0.0, _REACH * last)
    square = 0.0 if linear_only else _square(points)
    if known_square > 0 and square <= _TRUST * known_square:
        square = min(known_square, most / last**2)
    elif square <= _SHARE * most / last**2:
        square = 0.0
    slope = max((most - least) / (last - first), 0.0)
    linear = max(slope - square * (first + last), 0.0)
    constant = max(least - linear * first - square * first**2, 0.0)
    return MemoryLaw(linear, square, constant, math.inf if linear_only else _REACH * last)


def _square(points: Sequence[tuple[int, int]]) -> float:
    """Return how the slope grows: over three points, or two and no constant part."""
    (first, least), (last, most) = points[0], points[-1]
    if len(points) == 2:
        return (most / last - least / first) / (last - first)
    middle, between = min(points[1:-1], key=lambda point: abs(point[0] ** 2 - first * last))
    bend = (most - between) / (last - middle) - (between - least) / (middle - first)
    return bend / (last - first)
