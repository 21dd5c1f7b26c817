"""The properties of a video, and its frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from ..images.image_data import ImageData
from .color import NO_LIGHT, Color, Light


@dataclass(frozen=True)
class Clip:
    """The properties of a video, known before a frame is decoded.

    Attributes:
        count: Frames in all.
        size: Displayed height and width in pixels.
        color: The encoding of its pixels.
        time_base: Seconds per tick of its time stamps; None for frames without times.
        rate: Mean frames per second; None for frames without times.
        even: All frames are shown for the same time.
        aspect: Width over height of a pixel.
        light: The display that it was graded on.
        warnings: Warnings about it.
    """

    count: int
    size: tuple[int, int]
    color: Color
    time_base: Fraction | None = None
    rate: Fraction | None = None
    even: bool = True
    aspect: Fraction = Fraction(1)
    light: Light = NO_LIGHT
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Frame:
    """One frame.

    Attributes:
        index: Its index, from 0.
        time: Its time in ticks of the clip's time base.
        load: Returns it as an image.
    """

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

    def identity(self) -> str:
        """Return a text that identifies the video."""
        ...


class Sink(Protocol):
    """A destination of restored frames."""

    @property
    def warnings(self) -> Sequence[str]:
        """What of the video it does not hold, once it is finished."""
        ...

    def wants(self, index: int) -> bool:
        """Whether a frame is missing."""
        ...

    def write(self, frame: Frame, image: ImageData) -> None:
        """Write a restored frame; frames arrive in order."""
        ...

    def finish(self) -> None:
        """Complete the output, after all wanted frames were written."""
        ...

    def keep(self) -> str:
        """Save the finished frames after an error; return a message on how to continue."""
        ...
