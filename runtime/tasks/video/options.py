"""What may be asked of a video besides what pictures take."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path

from ....core.errors import NystraError

VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv")
"""File suffixes of the videos that are read and written."""

CODECS = {"h264": "libx264", "hevc": "libx265"}
"""Name of a codec -> its encoder."""

_NTSC = {
    "23.976": Fraction(24000, 1001),
    "29.97": Fraction(30000, 1001),
    "47.952": Fraction(48000, 1001),
    "59.94": Fraction(60000, 1001),
    "119.88": Fraction(120000, 1001),
}


@dataclass(frozen=True)
class VideoOptions:
    """The flags that only videos have; what is None was not given.

    Attributes:
        video: A folder holds the frames of one video, not pictures that have nothing in common.
        fps: Frames a second where a folder of frames becomes a video.
        codec: ``h264`` or ``hevc``; None is hevc for more than 8 bits, else h264.
        crf: Quality of the codec, 0 (lossless or nearly so) to 51; None is 18.
        time_overlap: Frames that two runs of a network on frames have in common.
        noise: Standard deviation of the noise in steps of 255, for a network that wants to know.
    """

    video: bool = False
    fps: Fraction | None = None
    codec: str | None = None
    crf: int | None = None
    time_overlap: int | None = None
    noise: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no video has."""
        if self.codec is not None and self.codec not in CODECS:
            raise NystraError(f"the codec is {self.codec!r}, expected {' or '.join(CODECS)}")
        if self.crf is not None and not 0 <= self.crf <= 51:
            raise NystraError(f"the crf is {self.crf}, expected 0 (best) to 51")
        if self.time_overlap is not None and self.time_overlap < 0:
            raise NystraError(f"the overlap in time is {self.time_overlap} frames, expected 0 up")
        if self.noise is not None and not 0 <= self.noise <= 255:
            raise NystraError(f"the noise is {self.noise:g}, expected 0 to 255")
        if self.fps is not None and not 0 < self.fps <= 1000:
            raise NystraError(f"got {self.fps} frames a second, expected above 0, up to 1000")

    @property
    def given(self) -> list[str]:
        """The flags that were given, as they are written."""
        return [
            f"--{field.name.replace('_', '-')}"
            for field in fields(self)
            if getattr(self, field.name) not in (None, False)
        ]


def parse_fps(text: str) -> Fraction:
    """Read frames a second: ``25``, ``30000/1001``, or ``29.97``, which is taken for that.

    Raises:
        NystraError: It is not of that form.
    """
    if text in _NTSC:
        return _NTSC[text]
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6}|/[1-9]\d{0,5})?", text):
        raise NystraError(f"--fps {text!r} is no frame rate, expected 25, 29.97 or 30000/1001")
    return Fraction(text)


def is_video(path: str | os.PathLike[str]) -> bool:
    """Tell by the suffix whether a path is that of a video file."""
    return Path(path).suffix.lower() in VIDEO_SUFFIXES
