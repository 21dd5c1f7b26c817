"""Decides between video and images, for models of single images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ....core.errors import NystraError
from ...session import Session
from ...video.containers import is_read, is_written
from ..registry import Report
from ..restoration.options import RunOptions
from ..restoration.result import ImageResult
from ..restoration.run import run_images
from .options import VideoOptions


def run_restoration(
    session: Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: RunOptions | None = None,
    video: VideoOptions | None = None,
    *,
    report: Report | None = None,
) -> Sequence[ImageResult]:
    """Run a model on images, or on a video frame by frame.

    It is a video if the input or output has the suffix of one, or if ``video`` is set for a folder
    of frames; otherwise images.

    Args:
        session: The model.
        input: As in `run_images` or `run_video`.
        output: The same.
        options: The same.
        video: The options of a video.
        report: As in `run_images` or `run_video`.

    Raises:
        NystraError: As they do; also if an option of videos is given for images.
    """
    clip = video or VideoOptions()
    if means_video(input, output, clip):
        from .run import run_video  # images do not wait for it

        return run_video(session, input, output, options, video=clip, report=report)
    check_no_video(clip)
    return run_images(session, input, output, options, report=report)


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
