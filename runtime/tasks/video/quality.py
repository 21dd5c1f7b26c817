"""The quality of a restored video: the frames of a folder against their ground truth."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ...images.images import read_image
from ...images.pairs import pair_images
from ...metrics.image_quality import Flicker
from ...session import Session
from ...video.frame_folder import FrameFolder
from ..restoration.options import RunOptions
from ..restoration.quality import (
    ImageQuality,
    QualityReport,
    choose_border,
    comparable,
    measure_image,
)
from .options import VideoOptions
from .run import restore_frames


def validate_clip(
    session: Session,
    input_folder: str | os.PathLike[str],
    truth_folder: str | os.PathLike[str],
    crop_border: int | None = None,
    channel: str = "y",
    *,
    options: VideoOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> QualityReport:
    """Measure the outputs of a model for the frames of a video against their ground truth.

    PSNR and SSIM of each frame are those of `validate_quality`; `Flicker` is measured too. A model
    of single images is run on each frame, one of frames as `run_video` does.

    Args:
        session: The model.
        input_folder: The frames, ordered by the numbers in their names.
        truth_folder: The expected frames; see `pair_images` for the names.
        crop_border: Pixels left out on every side; None is the scale (0 at scale 1).
        channel: ``y`` or ``rgb``.
        options: Overlap in time, and noise.
        progress: Called with (frames done, frames in total).

    Raises:
        NystraError: A frame cannot be read, has no partner or another size than expected.
    """
    truths = dict(pair_images(input_folder, truth_folder))
    source = FrameFolder(Path(input_folder), files=list(truths))
    scale, frames = restore_frames(session, source, RunOptions(), options or VideoOptions())
    border = choose_border(crop_border, scale)
    flicker = Flicker(border, channel)
    images: list[ImageQuality] = []
    for file, restored in zip(source.files, frames, strict=True):
        truth, names = read_image(truths[file]).pixels, (file, truths[file])
        got, expected = comparable(restored.image.pixels, source.size, truth, scale, names)
        images.append(measure_image(file.name, got, expected, border, channel))
        flicker.add(got, expected)
        if progress is not None:
            progress(len(images), source.count)
    return QualityReport(tuple(images), border, channel, "none", flicker=flicker.value)
