"""The properties of a video, and its frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from ..images.image_data import ImageData


@dataclass(frozen=True)
class Color:
    """How the pixels of a video are stored; the numbers are those of ITU-T H.273.

    Attributes:
        pixel_format: The name that FFmpeg has for planes like these.
        bits: Bits per number.
        alpha: There is a plane of alpha.
        matrix: Weights of red and blue in the luma.
        full: Black is 0 and white the largest number.
        primaries: Copied.
        transfer: Copied.
    """

    pixel_format: str = "yuv420p"
    bits: int = 8
    alpha: bool = False
    matrix: int = 1
    full: bool = False
    primaries: int = 2
    transfer: int = 2


@dataclass(frozen=True)
class Clip:
    """The properties of a video, known before its frames are decoded.

    Attributes:
        count: Frames in all.
        size: Displayed height and width in pixels.
        color: How its pixels are stored.
        time_base: Seconds per tick of its time stamps; None for frames without times.
        rate: Mean frames per second; None for frames without times.
        aspect: Width over height of a pixel.
        besides: What it holds that a folder of frames does not, in words.
        warnings: Warnings about it.
    """

    count: int
    size: tuple[int, int]
    color: Color
    time_base: Fraction | None = None
    rate: Fraction | None = None
    aspect: Fraction = Fraction(1)
    besides: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Frame:
    """One frame: its index from 0, its time in ticks of the clip, and what returns it."""

    index: int
    time: int
    load: Callable[[], ImageData]


class FrameSource(Protocol):
    """A source of frames."""

    path: Path
    clip: Clip

    def frames(self) -> Iterator[Frame]:
        """Yield all frames in display order."""
        ...

    def name(self, index: int) -> Path:
        """Return the file name of a frame in a folder."""
        ...
