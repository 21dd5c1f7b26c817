"""What is known of a video, and one frame of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from ..images.image_data import ImageData
from .colour import Colour


@dataclass(frozen=True)
class Clip:
    """What is known of a video before a frame of it is decoded.

    Attributes:
        count: Frames in all.
        size: Height and width in pixels, as it is shown.
        colour: How pixels are written in it.
        time_base: Seconds a tick of its time stamps; None for frames without times.
        rate: Mean frames a second; None for frames without times.
        even: Every frame is shown for as long.
        aspect: Width over height of a pixel.
        warnings: What is odd about it.
    """

    count: int
    size: tuple[int, int]
    colour: Colour
    time_base: Fraction | None = None
    rate: Fraction | None = None
    even: bool = True
    aspect: Fraction = Fraction(1)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Frame:
    """One frame.

    Attributes:
        index: Which one, from 0 on.
        time: In ticks of the clip's time base.
        load: Makes an image of it.
    """

    index: int
    time: int
    load: Callable[[], ImageData]


class FrameSource(Protocol):
    """Where frames come from."""

    path: Path
    clip: Clip

    def frames(self) -> Iterator[Frame]:
        """Yield all frames in the order in which they are shown."""
        ...

    def name(self, index: int) -> Path:
        """Return the file name that a frame has, or gets in a folder."""
        ...

    def identity(self) -> str:
        """Return a text that is another one where the video is another one."""
        ...


class Sink(Protocol):
    """Where restored frames go."""

    def wants(self, index: int) -> bool:
        """Whether a frame is not there yet."""
        ...

    def write(self, frame: Frame, image: ImageData) -> None:
        """Keep a restored frame; they come in order."""
        ...

    def finish(self) -> None:
        """Put everything in its place: all frames that were wanted have been written."""
        ...

    def keep(self) -> str:
        """Save what there is after an error; return what is kept and how to continue, in words."""
        ...
