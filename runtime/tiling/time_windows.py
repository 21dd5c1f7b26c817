"""Windows of a video: tiles in time, for networks that take several frames at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.errors import NystraError
from .tile_plan import blend_weights, tile_positions


@dataclass(frozen=True)
class Window:
    """Frames that go through a network together.

    Attributes:
        start: Index of the first frame.
        indices: All indices in order; a video shorter than the window is mirrored.
        weights: Weight of the result of each; over all windows they add up to 1 for every frame.
    """

    start: int
    indices: tuple[int, ...]
    weights: npt.NDArray[np.float32]


def plan_windows(count: int, length: int, overlap: int | None = None) -> list[Window]:
    """Return the windows of a video.

    All windows have the same length and a constant step, except for the last one, which ends with
    the video. Where two overlap, the quarter of the overlap at the border of each, where the
    network has the fewest neighboring frames, has the weight 0; over the half between, one fades
    into the other. So a frame equals that of a run without windows, up to rounding, if the network
    sees no farther than a quarter of the overlap.

    Args:
        count: Frames of the video, at least 1.
        length: Frames that the network takes.
        overlap: Least number of common frames of neighbors; None is a quarter of the length, at
            least 2 if the length is 4 or more.

    Raises:
        NystraError: The overlap leaves no new frames.
    """
    if overlap is None:
        overlap = max(length // 4, min(2, length // 2))
    if overlap >= length:
        raise NystraError(
            f"an overlap of {overlap} frames leaves no new frames for a network that takes "
            f"{length} per run: expected at most {length - 1}"
        )
    if count <= length:
        return [Window(0, tuple(_mirror(count, length)), np.ones(length, np.float32))]
    spans = tile_positions(count, length, overlap)
    return [
        Window(start, tuple(range(start, end)), weights)
        for (start, end), weights in zip(spans, blend_weights(spans, _ramp), strict=True)
    ]


def _mirror(count: int, length: int) -> list[int]:
    period = max(2 * count - 2, 1)
    return [min(index % period, period - index % period) for index in range(length)]


def _ramp(shared: int) -> npt.NDArray[np.float64]:
    """Return 0 over a quarter, a line up over the half, 1 over the last quarter."""
    outer = shared // 4
    inner = shared - 2 * outer
    return np.concatenate([np.zeros(outer), (np.arange(inner) + 0.5) / inner, np.ones(outer)])
