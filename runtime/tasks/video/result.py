"""The result of a video, or of one of its frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..restoration.result import ImageResult


@dataclass(frozen=True)
class VideoResult(ImageResult):
    """The result of a video; `ImageResult` has the other fields.

    Attributes:
        frames: Number of restored frames.
        kept: Number of existing frames.
        reused: Number of tiles that equal those of the previous frame and were not run again.
    """

    things: ClassVar[str] = "frames"
    frames: int = 0
    kept: int = 0
    reused: int = 0

    @property
    def tiles_text(self) -> str:
        """The number of tiles and of reused tiles, in words."""
        repeats = f", {self.reused} unchanged from the previous frame" if self.reused else ""
        return f"{self.tiles} tiles{repeats}"
