"""The results of a video and of its frames, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..restoration.result import ImageResult
from ..restoration.result import line as line
from ..restoration.result import rows as rows


@dataclass(frozen=True)
class VideoResult(ImageResult):
    """The result of a video or of one frame; `ImageResult` has the other fields.

    Attributes:
        frames: Number of restored frames.
    """

    things: ClassVar[str] = "frames"
    columns: ClassVar[tuple[str, ...]] = ("input", "output", "size", "seconds", "frames")
    frames: int = 0

    @property
    def count_text(self) -> str:
        """The last column of a table."""
        return str(self.frames)


def example(model: str) -> str:
    """Return a program in Python that runs a model file of this name."""
    return f"""
from nystra.runtime import Session, run_video

run_video(Session({model!r}), "clip.mp4", "restored.mp4")
"""
