"""How the memory of a run grows with the pixels of its image.

A run of n pixels takes ``constant + n * linear + n^2 * square`` bytes at its peak: feature maps and
windows grow with the pixels, attention over the whole image with their square. The constant is
allocated once, by the first run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

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
    """The peak memory of a run.

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

    def most_pixels(self, budget: float) -> int:
        """Return the most pixels whose run fits into a budget, within the reach."""
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
        points: (pixels, peak bytes above what was there before any run), in ascending order; from a
            single one the worst case is assumed.
        known_square: The quadratic part that the model file states; 0 if none.
        linear_only: The model is known to have no quadratic part.
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
    """Return the growth of the slope, from three points, or from two without a constant part.

    Of the results for every point between the first and the last this is the median: allocation
    steps of one small run bend the curve there alone, a quadratic part bends it everywhere.
    """
    (first, least), (last, most) = points[0], points[-1]
    if len(points) == 2:
        return (most / last - least / first) / (last - first)
    bends = [
        (most - between) / (last - middle) - (between - least) / (middle - first)
        for middle, between in points[1:-1]
    ]
    return statistics.median(bends) / (last - first)
