"""The quality of a restored video: the frames of a folder against their ground truth."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ....core.errors import NystraError
from ...images.images import read_image
from ...images.pairs import paired_images
from ...metrics.guarded_figure import GuardedFigure
from ...metrics.image_quality import Flicker, psnr, ssim
from ...session import Session
from ...video.folder_source import FrameFolder, frame_order
from ..quality import Network, Quality
from ..restoration.options import RunOptions
from ..restoration.quality import ImageQuality, QualityReport, comparable, validate_quality
from .options import QualityOptions, VideoOptions
from .run import frame_restorer_for


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
        truth_folder: The expected frames; see `paired_images` for the names.
        crop_border: Pixels left out on every side; None is the scale (0 at scale 1).
        channel: ``y`` or ``rgb``.
        options: Overlap in time, and noise.
        progress: Called with (frames done, frames in total).

    Raises:
        NystraError: A frame cannot be read, has no partner or another size than expected.
    """
    pairs = paired_images(input_folder, truth_folder)
    pairs.sort(key=lambda pair: frame_order(pair[0].name))
    source = FrameFolder(Path(input_folder), files=[path for path, _ in pairs])
    restorer = frame_restorer_for(session, source, RunOptions(), options or VideoOptions())
    border = (
        crop_border if crop_border is not None else (restorer.scale if restorer.scale > 1 else 0)
    )
    flicker = Flicker(border, channel)
    results: list[ImageQuality] = []
    for restored in restorer.restore(source, lambda _: True):
        names = pairs[restored.frame.index]
        truth = read_image(names[1]).pixels
        size = source.clip.size
        got, expected = comparable(restored.image.pixels, size, truth, restorer.scale, names)
        results.append(
            ImageQuality(
                names[0].name,
                psnr(got, expected, crop_border=border, channel=channel),
                ssim(got, expected, crop_border=border, channel=channel),
            )
        )
        flicker.add(got, expected)
        if progress is not None:
            progress(len(results), len(pairs))
    return QualityReport(tuple(results), border, channel, "none", flicker=flicker.value)


def _measure(
    session: Session,
    options: QualityOptions,
    progress: Callable[[str], None] = lambda text: None,
    network: Network | None = None,
) -> QualityReport:
    """Measure the images or frames of ``options``; the network itself is not measured."""
    if options.images is None or options.truth is None:
        raise NystraError("there is nothing to measure: give `images` and `truth`")
    common = (session, options.images, options.truth, options.crop, options.channel)

    def report(done: int, total: int) -> None:
        progress(f"image {done} of {total}")

    if not options.video and session.facts.input("frames") is None:
        return validate_quality(
            *common,
            options.pad,
            mask=options.mask,
            reference=options.reference,
            inputs=options.inputs,
            progress=report,
        )
    alone = {
        "`mask`": options.mask is not None,
        "`reference`": options.reference is not None,
        "`inputs`": options.inputs is not None,
        "`pad` official": options.pad != "none",
    }
    for flag, is_set in alone.items():
        if is_set:
            raise NystraError(f"{flag} does not apply to the frames of a video: omit it")
    return validate_clip(*common, progress=report)


_NEEDS = "`images` and `truth`"

QUALITY = Quality(
    name="quality",
    items={
        "quality_psnr": GuardedFigure("PSNR against ground truth", "dB", "drop", 0.05, _NEEDS),
        "quality_ssim": GuardedFigure("SSIM against ground truth", "", "drop", 0.001, _NEEDS),
        "quality_flicker": GuardedFigure(
            "flicker against ground truth", "of 255", "growth", 0.02, f"{_NEEDS} with `video`"
        ),
    },
    settings={"channel": str, "crop_border": int, "images": list},
    options=QualityOptions,
    measure=_measure,
    fixed=("channel", "crop", "pad"),
)
