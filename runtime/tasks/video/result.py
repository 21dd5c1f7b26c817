"""The results of a video and of its frames, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..restoration.result import ImageResult
from ..restoration.result import line as line
from ..restoration.result import rows as rows


@dataclass(frozen=True)
class VideoResult(ImageResult):
    """The result of a video; `ImageResult` has the other fields.

    Attributes:
        frames: Number of restored frames.
        kept: Number of existing frames.
        reused: Number of tiles that equal those of the previous frame and were not run again.
    """

    things: ClassVar[str] = "frames"
    columns: ClassVar[tuple[str, ...]] = ("input", "output", "size", "seconds", "frames")
    frames: int = 0
    kept: int = 0
    reused: int = 0

    @property
    def tiles_text(self) -> str:
        """The number of tiles and of reused tiles, in words."""
        repeats = f", {self.reused} unchanged from the previous frame" if self.reused else ""
        return f"{self.tiles} tiles{repeats}"

    @property
    def count_text(self) -> str:
        """The last column of a table."""
        return f"{self.frames}, {self.kept} kept" + (f", {self.tiles_text}" if self.reused else "")


def example(model: str) -> str:
    """Return a program in Python that runs a model file of this name."""
    return f"""
from nystra.runtime import Session, run_video

run_video(Session({model!r}), "clip.mp4", "restored.mp4")
"""
