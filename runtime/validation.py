"""Is the file right, and how good is what it makes: two questions that are never mixed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..plugins.errors import NystraError
from .checks import find_problems, max_abs
from .evaluation import official_pad
from .images import read_picture
from .metrics import json_number, luma, psnr, ssim
from .pairs import paired_pictures
from .references import ReferenceCase, References
from .restore import Restorer, restorer_for
from .session import Session

DEFAULT_TOLERANCE = 1e-4
"""Largest difference from PyTorch on images in 0..1 that counts as rounding."""

Array = npt.NDArray[Any]


class NamedRunner(Protocol):
    """What runs a model on named arrays, as `Session` does; PyTorch can be wrapped like this."""

    def run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return output name -> array."""


Runner = NamedRunner | Callable[[Array], Array]


@dataclass(frozen=True)
class SizeReport:
    """One recorded size, the model's outputs against the references.

    Attributes:
        shapes: Input name -> shape.
        max_abs: Largest absolute difference over all outputs.
        mean_abs: Mean absolute difference.
        psnr: In dB, peak 1, of all outputs together; infinite if they are equal.
        tolerance: What `max_abs` may be.
        mean_tolerance: What `mean_abs` may be where `max_abs` is above its tolerance; None: there
            is no such way out.
        findings: What is wrong: NaN, infinity, a flat output, a difference above the tolerance.
    """

    shapes: dict[str, list[int]]
    max_abs: float
    mean_abs: float
    psnr: float
    tolerance: float
    findings: tuple[str, ...]
    mean_tolerance: float | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


@dataclass(frozen=True)
class ValidationReport:
    """All sizes of one validation."""

    sizes: tuple[SizeReport, ...]

    @property
    def passed(self) -> bool:
        """Whether every size passed."""
        return all(size.passed for size in self.sizes)

    @property
    def max_abs(self) -> float:
        """The largest difference of all sizes; NaN if one is."""
        return float(np.max([size.max_abs for size in self.sizes]))

    @property
    def psnr(self) -> float:
        """The smallest PSNR of all sizes, in dB; NaN if one is."""
        return float(np.min([size.psnr for size in self.sizes]))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON takes it."""
        sizes = []
        for size in self.sizes:
            entry = {**asdict(size), "findings": list(size.findings), "passed": size.passed}
            for key in ("max_abs", "mean_abs", "psnr"):
                entry[key] = json_number(entry[key])
            sizes.append(entry)
        return {
            "passed": self.passed,
            "max_abs": json_number(self.max_abs),
            "psnr": json_number(self.psnr),
            "sizes": sizes,
        }


def validate_against_references(
    runner: Runner,
    references: References,
    tolerance: float | Sequence[float] | None = None,
) -> ValidationReport:
    """Compare what a model makes with recorded references.

    Args:
        runner: A `Session`, anything else with its ``run``, or a function of the only input that
            returns the only output.
        references: The recorded cases.
        tolerance: Largest absolute difference, one number or one a case; None takes the recorded
            ``tolerances`` and ``mean_tolerances``, or `DEFAULT_TOLERANCE`.

    Raises:
        NystraError: The model has other inputs, outputs or shapes than the references.
    """
    cases = references.cases
    limits = tolerance if tolerance is not None else references.meta.get("tolerances")
    if limits is None:
        limits = DEFAULT_TOLERANCE
    numbers = [float(limits)] * len(cases) if isinstance(limits, int | float) else list(limits)
    if len(numbers) != len(cases):
        raise NystraError(f"got {len(numbers)} tolerances, expected one for {len(cases)} cases")
    means = None if tolerance is not None else references.meta.get("mean_tolerances")
    means = [None] * len(cases) if means is None else list(means)
    return ValidationReport(
        tuple(
            _one_size(runner, case, float(n), mean)
            for case, n, mean in zip(cases, numbers, means, strict=True)
        )
    )


@dataclass(frozen=True)
class PictureQuality:
    """One picture against its ground truth.

    Attributes:
        name: File name of the input.
        psnr: In dB, peak 1; infinite if they are equal.
        ssim: Structural similarity.
    """

    name: str
    psnr: float
    ssim: float


@dataclass(frozen=True)
class QualityReport:
    """Pictures against their ground truth, and how it was measured.

    Attributes:
        pictures: One entry a picture.
        crop_border: Pixels left out on every side.
        channel: ``y`` (BT.601) or ``rgb``.
        pad: ``none`` or ``official``.
    """

    pictures: tuple[PictureQuality, ...]
    crop_border: int
    channel: str
    pad: str

    @property
    def psnr(self) -> float:
        """Mean PSNR over the pictures, in dB."""
        return float(np.mean([picture.psnr for picture in self.pictures]))

    @property
    def ssim(self) -> float:
        """Mean SSIM over the pictures."""
        return float(np.mean([picture.ssim for picture in self.pictures]))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON takes it."""
        rows = [
            {"name": p.name, "psnr": json_number(p.psnr), "ssim": json_number(p.ssim)}
            for p in self.pictures
        ]
        return {
            "psnr": json_number(self.psnr),
            "ssim": json_number(self.ssim),
            "crop_border": self.crop_border,
            "channel": self.channel,
            "pad": self.pad,
            "pictures": rows,
        }


def validate_quality(
    runner: Session | Restorer,
    input_folder: str | os.PathLike[str],
    truth_folder: str | os.PathLike[str],
    crop_border: int | None = None,
    channel: str = "y",
    pad: str = "none",
    *,
    window: int | None = None,
    tile: int = 0,
    overlap: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> QualityReport:
    """Measure what a model makes of a folder of pictures against their ground truth.

    The ground truth is cropped at the bottom and right to a multiple of the scale, and the
    output is rounded to 8 bits before it is compared, as the published figures are.

    Args:
        runner: A `Session`, or a `Restorer` around any function (PyTorch's, for one).
        input_folder: What the model gets.
        truth_folder: What it should make of it; see `paired_pictures` for the names.
        crop_border: Pixels left out on every side; None is the scale (at scale 1 none).
        channel: ``y`` or ``rgb``; see `nystra.runtime.metrics`.
        pad: ``official`` mirrors each picture first as SwinIR's test procedure does, ``none``
            leaves that to the model.
        window: The window ``official`` pads to; None takes the model's.
        tile: As in `Restorer`.
        overlap: As in `Restorer`.
        progress: Called with (pictures done, pictures in all).

    Raises:
        NystraError: A picture cannot be read, has no partner or another size than expected.
    """
    restorer = restorer_for(runner) if isinstance(runner, Session) else runner
    if isinstance(runner, Session) and window is None and runner.facts.window is not None:
        window = max(runner.facts.window)
    if pad not in ("none", "official"):
        raise NystraError(f"the pad is {pad!r}, expected 'none' or 'official'")
    if pad == "official" and window is None:
        raise NystraError("the official padding needs the model's window: give --window")
    scale = restorer.scale
    border = crop_border if crop_border is not None else (scale if scale > 1 else 0)
    pairs = paired_pictures(input_folder, truth_folder)
    results = []
    for index, (here, there) in enumerate(pairs):
        pixels, truth = read_picture(here).pixels, read_picture(there).pixels
        height, width = (side - side % scale for side in truth.shape[:2])
        truth = truth[:height, :width]
        given = pixels
        if pad == "official" and window is not None:
            given = np.moveaxis(official_pad(np.moveaxis(pixels, 2, 0), window), 0, 2)
        output, _ = restorer(given, tile, overlap)
        output = output[: pixels.shape[0] * scale, : pixels.shape[1] * scale]
        if output.shape[:2] != truth.shape[:2]:
            raise NystraError(
                f"{here.name} became {output.shape[:2]} at scale {scale}, its ground truth "
                f"{there.name} is {truth.shape[:2]}"
            )
        rounded = np.round(np.clip(output, 0.0, 1.0) * 255.0) / 255.0
        got, expected = _same_colours(rounded, truth)
        results.append(
            PictureQuality(
                here.name,
                psnr(got, expected, crop_border=border, channel=channel),
                ssim(got, expected, crop_border=border, channel=channel),
            )
        )
        if progress is not None:
            progress(index + 1, len(pairs))
    return QualityReport(tuple(results), border, channel, pad)


def _one_size(
    runner: Runner, case: ReferenceCase, tolerance: float, mean_tolerance: float | None
) -> SizeReport:
    feeds = case.feeds()
    outputs = _run(runner, feeds, tuple(case.outputs))
    worst, total, square, count = 0.0, 0.0, 0.0, 0
    findings: list[str] = []
    for name, expected in case.outputs.items():
        if name not in outputs:
            raise NystraError(f"the model gives {sorted(outputs)}, the references hold {name!r}")
        got = np.asarray(outputs[name])
        findings += [finding.message for finding in find_problems(got, name, expected)]
        worst = float(np.maximum(worst, max_abs(got, expected)))
        difference = got.astype(np.float64) - expected.astype(np.float64)
        total += float(np.abs(difference).sum())
        square += float((difference**2).sum())
        count += got.size
    mean = total / max(count, 1)
    if not worst <= tolerance and (mean_tolerance is None or not mean <= mean_tolerance):
        text = f"the largest difference is {worst:.3g}, allowed is {tolerance:.3g}"
        if mean_tolerance is not None:
            text += f", and the mean is {mean:.3g}, allowed is {mean_tolerance:.3g}"
        findings.append(text)
    mean_square = square / max(count, 1)
    return SizeReport(
        {name: list(array.shape) for name, array in feeds.items()},
        worst,
        mean,
        float("inf") if mean_square == 0.0 else float(-10.0 * np.log10(mean_square)),
        tolerance,
        tuple(findings),
        mean_tolerance,
    )


def _run(runner: Runner, feeds: Mapping[str, Array], names: tuple[str, ...]) -> Mapping[str, Array]:
    if hasattr(runner, "run"):
        outputs: Mapping[str, Array] = runner.run(feeds)
        return outputs
    if len(feeds) != 1 or len(names) != 1:
        raise NystraError("a plain function runs models with one input and one output only")
    return {names[0]: runner(next(iter(feeds.values())))}


def _same_colours(got: Array, truth: Array) -> tuple[Array, Array]:
    """Return both grey or both colour: where only one is grey, the other's luma stands for it."""
    if got.shape[2] == truth.shape[2]:
        return got, truth
    if got.shape[2] == 3:
        return _unswung(got), truth
    return got, _unswung(truth)


def _unswung(picture: Array) -> Array:
    """Return the luma of a colour picture in full swing, 0..1, as (H, W, 1)."""
    full: Array = (luma(picture)[:, :, None] * 255.0 - 16.0) / 219.0
    return full
