"""What became of a video, or of one of its frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..restoration.result import PictureResult


@dataclass(frozen=True)
class VideoResult(PictureResult):
    """What became of a video; `PictureResult` has the rest.

    Attributes:
        frames: How many were made.
        kept: How many were there.
    """

    things: ClassVar[str] = "frames"
    frames: int = 0
    kept: int = 0
