"""The result of a video, or of one of its frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..restoration.result import ImageResult


@dataclass(frozen=True)
class VideoResult(ImageResult):
    """The result of a video; `ImageResult` has the rest.

    Attributes:
        frames: How many were made.
        kept: How many were there.
        reused: Tiles that are those of the frame before, and were not run again.
    """

    things: ClassVar[str] = "frames"
    frames: int = 0
    kept: int = 0
    reused: int = 0

    @property
    def tiles_text(self) -> str:
        """How many tiles there were, and how many of them repeat."""
        repeats = f", {self.reused} equal to the frame before" if self.reused else ""
        return f"{self.tiles} tiles{repeats}"
