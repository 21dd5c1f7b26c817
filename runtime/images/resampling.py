"""Images of another size, by the two rules that classifying networks are trained with.

With antialias it is Pillow's rule (and torchvision's for images), without it PyTorch's
``interpolate``; both place a pixel at its center.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.ports.preprocessing import Resize


@dataclass(frozen=True)
class Filter:
    """A filter.

    Attributes:
        radius: Pixels to each side that it covers.
        weight: Distance in pixels -> weight.
    """

    radius: int
    weight: Callable[[Array], Array]


def resample(
    pixels: Array, resize: Resize, rows: slice | None = None, columns: slice | None = None
) -> npt.NDArray[np.float32]:
    """Resize an image, or compute a part of the resized image.

    Args:
        pixels: (H, W, C).
        resize: The size and the filter.
        rows: The rows of the resized image that are returned; None: all.
        columns: The columns that are returned; None: all.

    Returns:
        (rows, columns, C); a bicubic filter goes a little beyond the range of the pixels.
    """
    height, width = resize.size(pixels.shape[0], pixels.shape[1])
    down = range(height)[rows or slice(None)]
    across = range(width)[columns or slice(None)]
    passes = [(0, height, down), (1, width, across)]
    if len(down) * pixels.shape[1] > pixels.shape[0] * len(across):
        passes.reverse()  # less lies in between
    for axis, length, span in passes:
        pixels = _along(axis, pixels, length, resize, span)
    return np.ascontiguousarray(pixels, dtype=np.float32)


def _along(axis: int, pixels: Array, length: int, resize: Resize, span: range) -> Array:
    lines = np.moveaxis(pixels, axis, 0)
    old = len(lines)
    if length == old:
        return np.moveaxis(lines[span.start : span.stop], 0, axis)
    resampled = np.empty((len(span), *lines.shape[1:]))
    weigh = _widen if resize.antialias else _nearest
    for row, place in enumerate(span):
        first, weights = weigh(place, old, length, resize.filter)
        resampled[row] = np.tensordot(weights, lines[first : first + len(weights)], 1)
    return np.moveaxis(resampled, 0, axis)


def _widen(place: int, old: int, new: int, name: str) -> tuple[int, Array]:
    """Return the first pixel that contributes to a position, and the weights from there on."""
    kind = _ANTIALIASED[name]
    scale = old / new
    wide = max(scale, 1.0)
    center = (place + 0.5) * scale
    first = max(int(center - kind.radius * wide + 0.5), 0)
    last = min(int(center + kind.radius * wide + 0.5), old)
    weights = kind.weight((np.arange(first, last) + 0.5 - center) / wide)
    return first, weights / weights.sum()


def _nearest(place: int, old: int, new: int, name: str) -> tuple[int, Array]:
    kind = _POINTWISE[name]
    center = (place + 0.5) * old / new - 0.5
    begin = int(np.floor(center)) - kind.radius + 1
    taps = np.arange(begin, begin + 2 * kind.radius)
    inside = np.clip(taps, 0, old - 1)
    weights = np.bincount(inside - inside[0], kind.weight(taps - center))
    return int(inside[0]), weights


def _triangle(distance: Array) -> Array:
    return np.maximum(1.0 - np.abs(distance), 0.0)


def _cubic(sharpness: float) -> Callable[[Array], Array]:
    """Return the cubic convolution of Keys (1981) with a as its free parameter."""
    a = sharpness

    def weight(distance: Array) -> Array:
        x = np.abs(distance)
        inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
        outer = ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
        return np.where(x < 1.0, inner, np.where(x < 2.0, outer, 0.0))

    return weight


CUBIC = {True: -0.5, False: -0.75}
"""With antialias or without -> the parameter a of the cubic filter."""

_ANTIALIASED = {"bilinear": Filter(1, _triangle), "bicubic": Filter(2, _cubic(CUBIC[True]))}
_POINTWISE = {"bilinear": Filter(1, _triangle), "bicubic": Filter(2, _cubic(CUBIC[False]))}
