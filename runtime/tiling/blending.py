"""The weights of overlapping spans of an axis: of tiles, of windows in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .tile_plan import Span

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
