"""The options of videos, in addition to those of images."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ....core.errors import NystraError
from ....core.option import Options, option
from ....core.option_kinds import Choice, Number, Switch
from ...video.containers import CODECS, is_read, is_written


@dataclass(frozen=True)
class VideoOptions(Options):
    """Options of videos only; None stands for the default."""

    heading: ClassVar[str] = "video (a file, or a folder of frames)"
    video: bool = option(
        Switch(
            "the folder holds the frames of one video, ordered by the numbers in their names "
            "(implied if the model takes frames)"
        )
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
    if names := video.list_changes():
        quoted = ", ".join(f"`{name}`" for name in names)
        raise NystraError(
            f"{quoted}: does not apply to images. A video is a file such as "
            "clip.mp4, or a folder with `video`"
        )
