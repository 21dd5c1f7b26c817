"""The quality that ``nystra validate`` and ``nystra check`` measure: of images, or of frames."""

from __future__ import annotations

from collections.abc import Callable

from ....core.errors import NystraError
from ...metrics.guarded_figure import GuardedFigure
from ...session import Session
from ..quality import Network, Quality
from .options import QualityOptions
from .quality import QualityReport, validate_quality


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
        "`mask`": options.mask,
        "`reference`": options.reference,
        "`inputs`": options.inputs,
        "`pad` official": None if options.pad == "none" else options.pad,
    }
    for flag, value in alone.items():
        if value is not None:
            raise NystraError(f"{flag} does not apply to the frames of a video: omit it")
    from ..video.quality import validate_clip  # images do not wait for it

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
