"""The options of videos, in addition to those of images."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

from ....core.errors import NystraError
from ....core.option import Option, Options, option
from ....core.option_kinds import Choice, File, Number, Switch
from ...options import INPUTS, MASK, REFERENCE, Given
from ...video.containers import CODECS, is_read, is_written

_NTSC = {
    "23.976": Fraction(24000, 1001),
    "29.97": Fraction(30000, 1001),
    "47.952": Fraction(48000, 1001),
    "59.94": Fraction(60000, 1001),
    "119.88": Fraction(120000, 1001),
}


@dataclass(frozen=True)
class FrameRate(Option):
    """Frames per second; as text ``25``, ``30000/1001``, or ``29.97`` with the same meaning."""

    _expected: ClassVar[str] = "a frame rate above 0, up to 1000, such as 25, 29.97 or 30000/1001"

    def read(self, name: str, text: str) -> Fraction:
        """Return the frame rate in a text."""
        if text in _NTSC:
            return _NTSC[text]
        if not re.fullmatch(r"\d{1,6}(\.\d{1,6}|/[1-9]\d{0,5})?", text, re.ASCII):
            raise self.refused(name, text)
        return self._accepted(name, Fraction(text))

    def _accepted(self, name: str, value: Any) -> Fraction:
        if not isinstance(value, (Fraction, int)) or not 0 < value <= 1000:
            raise self.refused(name, value)
        return Fraction(value)


@dataclass(frozen=True)
class VideoOptions(Options):
    """Options of videos only; None stands for the default."""

    heading: ClassVar[str] = "video (a file, or a folder of frames)"
    video: bool = option(
        Switch(
            "the folder holds the frames of one video, ordered by the numbers in their names "
            "(implied if the output is a video or the model takes frames)"
        )
    )
    fps: Fraction | None = option(
        FrameRate(None, "frame rate of a folder of frames, such as 30000/1001", metavar="N")
    )
    codec: str | None = option(
        Choice(
            None,
            " or ".join(CODECS),
            tuple(CODECS),
            default_text="hevc above 8 bits, else h264",
            metavar="NAME",
        )
    )
    crf: int | None = option(
        Number(None, "constant rate factor; lower is better and larger", 0, 51, default_text="18")
    )
    time_overlap: int | None = option(
        Number(
            None,
            "overlap, in frames, between two runs of a video model",
            0,
            default_text="a quarter",
        )
    )
    noise: float | None = option(
        Number(
            None,
            "noise level (standard deviation of 8-bit values), for video models that take one",
            0,
            255,
            real=True,
            metavar="S",
        )
    )


def means_video(
    input: str | os.PathLike[str], output: str | os.PathLike[str], video: VideoOptions
) -> bool:
    """Return whether the input for a model of images is a video."""
    return is_read(input) or is_written(output) or (video.video and Path(input).is_dir())


def check_no_video(video: VideoOptions) -> None:
    """Raise NystraError if an option of videos is given for images."""
    if names := video.changed():
        shown = ", ".join(f"`{name}`" for name in names)
        raise NystraError(
            f"{shown}: does not apply to images. A video is a file such as "
            "clip.mp4, or a folder with `video`"
        )


@dataclass(frozen=True)
class QualityOptions(Options):
    """Images or frames with a ground truth."""

    images: str | os.PathLike[str] | None = option(
        File(None, "inputs with a ground truth", metavar="FOLDER")
    )
    truth: str | os.PathLike[str] | None = option(
        File(None, "ground truth of `images`", metavar="FOLDER")
    )
    video: bool = option(
        Switch(
            "`images` and `truth` are the frames of one video: also measure flicker (implied by "
            "a video model)"
        )
    )
    mask: str | os.PathLike[str] | None = option(
        MASK, doc="masks of `images`, for inpainting: white is filled"
    )
    reference: str | os.PathLike[str] | None = option(
        REFERENCE, doc="reference images of `images`, for models that take one"
    )
    inputs: Mapping[str, Given] | None = option(INPUTS)
    channel: str = option(Choice("y", "color channels that are compared", ("y", "rgb")))
    crop: int | None = option(
        Number(None, "ignored border", 0, unit="pixels", default_text="scale")
    )
    pad: str = option(
        Choice(
            "none",
            "official: mirror each image as in SwinIR's test procedure",
            ("none", "official"),
        )
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.images is None) != (self.truth is None):
            raise NystraError("`images` and `truth` are used together: give both or neither")
        if self.images is None and (self.mask, self.reference, self.inputs) != (None, None, None):
            raise NystraError(
                "`mask`, `reference` and `inputs` belong to `images` and `truth`: give these too"
            )
        if self.images is None and self.video:
            raise NystraError("`video` belongs to `images` and `truth`: give these too")
