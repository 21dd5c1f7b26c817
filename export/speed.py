"""The planned file against the full-attention file, in interleaved runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runtime.session import Session
from ..runtime.timing.interleaved import interleaved
from .pictures import Feeds

_SECONDS = 10.0


@dataclass(frozen=True)
class Speed:
    """Median seconds of one picture, and the ratio of interleaved runs.

    Attributes:
        planned: seconds of the planned file.
        full: seconds of the full-attention file.
        ratio: full over planned; above 1 the plan is faster.
        size: height and width of the picture.
        library: both ran with the operator library.
    """

    planned: float
    full: float
    ratio: float
    size: tuple[int, int]
    library: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "planned_seconds": self.planned,
            "full_seconds": self.full,
            "ratio": self.ratio,
            "size": list(self.size),
            "library": self.library,
        }


def compare_speed(planned: Path, full: Path, feeds: Feeds) -> Speed:
    """Time two files on the same inputs, the picture first, in interleaved runs of ten seconds."""
    sessions = {"planned": Session(planned), "full": Session(full)}
    timing = interleaved(
        {name: lambda run=session.run: run(feeds) for name, session in sessions.items()},  # type: ignore[misc]
        seconds=_SECONDS,
    )
    image = feeds["input"]
    return Speed(
        timing.medians["planned"],
        timing.medians["full"],
        timing.ratios["full", "planned"],
        (image.shape[2], image.shape[3]),
        sessions["planned"].library is not None,
    )
