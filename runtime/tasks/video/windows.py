"""Which frames a network on frames takes at once, and with what weight each result counts.

All windows have one length and follow each other by one step, but for the last, which is moved
back to end with the video. Where two overlap, the outer quarter at the border of each, where a
network knows least of what comes before or after, does not count; over the half between them one
fades into the other. So a frame is that of a run without cuts, up to rounding, wherever the
network sees no farther than a quarter of the overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....core.errors import NystraError
from ...tiling.blending import blend_weights
from ...tiling.tile_plan import tile_positions


@dataclass(frozen=True)
class Window:
    """Frames that go through a network together.

    Attributes:
        start: The first one.
        indices: All of them in order; a video shorter than the window continues mirrored.
        weights: Of what becomes of each; over all windows they add up to 1 for every frame.
    """

    start: int
    indices: tuple[int, ...]
    weights: npt.NDArray[np.float32]


def plan_windows(count: int, length: int, overlap: int | None = None) -> list[Window]:
    """Return the windows of a video.

    Args:
        count: Frames of the video, at least 1.
        length: Frames that the network takes.
        overlap: Frames that neighbours have in common at least; None is a quarter of the length,
            but at least 2 where it has 4.

    Raises:
        NystraError: The overlap leaves no step.
    """
    if overlap is None:
        overlap = max(length // 4, min(2, length // 2))
    if overlap >= length:
        raise NystraError(
            f"an overlap of {overlap} frames leaves no new frames for a network that takes "
            f"{length} per run: expected at most {length - 1}"
        )
    if count <= length:
        return [Window(0, tuple(_mirrored(count, length)), np.ones(length, np.float32))]
    spans = tile_positions(count, length, overlap)
    return [
        Window(start, tuple(range(start, end)), weights)
        for (start, end), weights in zip(spans, blend_weights(spans, _ramp), strict=True)
    ]


def _mirrored(count: int, length: int) -> list[int]:
    period = max(2 * count - 2, 1)
    return [min(index % period, period - index % period) for index in range(length)]


def _ramp(shared: int) -> npt.NDArray[np.float64]:
    """Return 0 over a quarter, a line up over the half, 1 over the last quarter."""
    outer = shared // 4
    inner = shared - 2 * outer
    return np.concatenate([np.zeros(outer), (np.arange(inner) + 0.5) / inner, np.ones(outer)])
