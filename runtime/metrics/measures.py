"""How outputs are compared, when an export warns, and the tolerances of files.

The tables are indexed by the role of the output and by the transform of the arithmetic; no other
module has such limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.ports.port import Port
from .image_quality import SSIM_SIDE, ssim

ROUNDING = 1e-4
"""Largest difference, as a share of the peak, that counts as float32's rounding."""

MOST_ROUNDING = 0.05
"""Most that float32's rounding may widen a tolerance to, as a share of the largest output."""

PSNR_CEILING = 100.0
"""dB above which two outputs differ by rounding only, which depends on the CPU."""


@dataclass(frozen=True)
class Tolerance:
    """The tolerance of a file against PyTorch, for a transform.

    Attributes:
        minimum: Largest difference that is always allowed, as a share of the peak.
        factor: Also allowed: this multiple of the error of the plain network in
            float32, and of the fake-quantized network, each against float64.
        coarsest: The headline figure that the fake-quantized network itself must reach; None: no
            limit.
        budget: The headline against float32 that has to be kept; the transform leaves layers in
            float32 for it.
        by_mean: If single pixels exceed the tolerance, a size passes with a mean difference up to
            this multiple of the fake-quantized network's. Values outside of the measured ranges are
            clipped at such pixels.
    """

    minimum: float = ROUNDING
    factor: float = 2.0
    coarsest: float | None = None
    budget: float = math.nan
    by_mean: bool = False


@dataclass(frozen=True)
class Measure:
    """How outputs of a role are compared.

    Attributes:
        figures: (got, expected) -> the figures by name; arrays of one shape with the batch first.
        headline: The figure that decides on a plan.
        unit: Unit of the headline, for display.
        higher: A higher headline is better.
        warning: The headline against full attention at which an export begins to warn.
        peak: Expected output -> the value that differences are relative to.
        tolerances: Name of a transform -> its tolerance.
        few: An output is a few numbers, so that a single difference says little about the effect of
            rounding: each size is allowed the largest difference of all sizes.
    """

    figures: Callable[[Array, Array], dict[str, float]]
    headline: str
    unit: str
    higher: bool
    warning: float
    peak: Callable[[Array], float]
    tolerances: Mapping[str, Tolerance]
    few: bool = False

    @property
    def best(self) -> float:
        """The headline of equal outputs."""
        return math.inf if self.higher else 0.0

    def value(self, got: Array, expected: Array) -> float:
        """Return the headline figure."""
        return self.figures(got, expected)[self.headline]

    def worst(self, values: Iterable[float]) -> float:
        """Return the worst headline of some images; NaN if one is."""
        return float((np.min if self.higher else np.max)(list(values)))

    def misses(self, value: float, limit: float) -> bool:
        """Whether a headline is worse than a limit; NaN is always worse."""
        return not (value >= limit if self.higher else value <= limit)

    def text(self, value: float) -> str:
        """Return a headline in words: ``35.0 dB``."""
        return f"{value:.1f} {self.unit}" if self.higher else f"{value:.2g} {self.unit}"


def decibels(mean_square: float, peak: float = 1.0) -> float:
    """Return the peak signal-to-noise ratio of a mean squared error; infinite for none."""
    if mean_square == 0.0:
        return math.inf
    return 20.0 * math.log10(peak) - 10.0 * math.log10(mean_square)


def mean_square(psnr: float) -> float:
    """Return the mean squared error, peak 1, of a PSNR in dB; 1, the largest one, of NaN."""
    return 1.0 if math.isnan(psnr) else 10.0 ** (-psnr / 10.0)


def clip_and_measure_psnr(
    got: Array, expected: Array, low: float = 0.0, high: float = 1.0
) -> float:
    """Return the PSNR in dB of an output against another, both clipped to low..high."""
    error = np.clip(got, low, high).astype(np.float64) - np.clip(expected, low, high)
    return decibels(float(np.mean(error**2)), high - low)


def image_figures(
    got: Array, expected: Array, low: float = 0.0, high: float = 1.0
) -> dict[str, float]:
    """Return PSNR in dB and SSIM of images or frames (..., H, W), peak high - low.

    Both are clipped to low..high. SSIM is the mean over all planes; it is left out where a side is
    below its window.
    """
    _check_shapes(got, expected)
    figures = {"psnr": clip_and_measure_psnr(got, expected, low, high)}
    if min(got.shape[-2:]) >= SSIM_SIDE:
        first, second = (
            np.moveaxis(np.clip(output, low, high).reshape(-1, *output.shape[-2:]) - low, 0, -1)
            for output in (got, expected)
        )
        figures["ssim"] = ssim(first, second, peak=high - low)
    return figures


def logits_figures(got: Array, expected: Array) -> dict[str, float]:
    """Return how logits (..., classes) agree.

    ``relative_error`` is the norm of the difference over that of the expected logits; ``top1`` the
    share of rows with the same first class, ``top5`` the share whose expected first class is among
    the five largest. Equal logits rank by their class, the smaller one first.
    """
    _check_shapes(got, expected)
    if expected.ndim == 0 or expected.size == 0:
        raise NystraError(f"got logits of shape {expected.shape}, expected (..., classes)")
    first, second = (
        np.asarray(logits, np.float64).reshape(-1, got.shape[-1]) for logits in (got, expected)
    )
    norm = float(np.linalg.norm(second))
    error = float(np.linalg.norm(first - second))
    if norm:
        error /= norm
    elif error:
        error = math.inf
    best = np.argsort(-second, axis=1, kind="stable")[:, :1]
    ranked = np.argsort(-first, axis=1, kind="stable")
    return {
        "relative_error": error,
        "top1": float(np.mean(ranked[:, :1] == best)),
        "top5": float(np.mean(np.any(ranked[:, :5] == best, axis=1))),
    }


@dataclass(frozen=True)
class Figure:
    """The name and format of a figure in reports.

    Attributes:
        title: Header of a column, for display.
        form: Format of a value, for `str.format`.
        higher: A higher value is better.
    """

    title: str
    form: str
    higher: bool = True

    def text(self, value: float) -> str:
        """Return a value in words; figures of equal outputs are capped."""
        return self.form.format(min(value, PSNR_CEILING))

    def worst(self, values: Iterable[float]) -> float:
        """Return the worst of some values; NaN if one is."""
        return float((np.min if self.higher else np.max)(list(values)))


FIGURES = {
    "psnr": Figure("PSNR", "{:.1f} dB"),
    "relative_error": Figure("relative error", "{:.1e}", higher=False),
    "top1": Figure("top-1", "{:.1%}"),
    "top5": Figure("top-5", "{:.1%}"),
}
"""The figures of a comparison of a file with its references."""


def reference_figures(pairs: Iterable[tuple[str, Array, Array]]) -> dict[str, float]:
    """Return how outputs agree with recorded ones, each by the measure of its role.

    All images together have one PSNR, with peak 1; unlike in `image_figures` values outside 0..1
    count, since the file and PyTorch should exceed the range equally. An output of an unknown role
    is an image. Of several logits, the worst figures are returned.

    Args:
        pairs: Role, output and recorded output; arrays of one shape.
    """
    square, count = 0.0, 0
    others: list[dict[str, float]] = []
    for role, got, expected in pairs:
        measure = MEASURES.get(role, _IMAGE)
        if measure is not _IMAGE:
            others.append(measure.figures(got, expected))
            continue
        square += float(((got.astype(np.float64) - expected.astype(np.float64)) ** 2).sum())
        count += got.size
    images = {"psnr": decibels(square / max(count, 1))} if count or not others else {}
    return images | worst_figures(others)


def worst_figures(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the worst of each figure, in the order of `FIGURES`."""
    listed = list(several)
    worst = {}
    for name, figure in FIGURES.items():
        if values := [figures[name] for figures in listed if name in figures]:
            worst[name] = figure.worst(values)
    return worst


def _check_shapes(got: Array, expected: Array) -> None:
    if got.shape != expected.shape:
        raise NystraError(f"got an output of shape {got.shape}, expected {expected.shape}")


_IMAGE = Measure(
    image_figures,
    "psnr",
    "dB",
    higher=True,
    warning=45.0,  # networks lost 0.25 to 1 dB against ground truth at 40 to 44 dB
    peak=lambda _: 1.0,
    tolerances={
        "fp32": Tolerance(),
        "fp16": Tolerance(coarsest=40.0),  # 2.5 steps of 8 bits
        "bf16": Tolerance(coarsest=40.0),
        "int8": Tolerance(coarsest=40.0, budget=50.0, by_mean=True),
    },
)
_LOGITS = Measure(
    logits_figures,
    "relative_error",
    "relative error",
    higher=False,
    warning=0.1,
    peak=lambda expected: float(np.max(np.abs(expected), initial=0.0)) or 1.0,
    tolerances={
        "fp32": Tolerance(),
        "fp16": Tolerance(coarsest=0.02),
        "bf16": Tolerance(coarsest=0.1),
        "int8": Tolerance(coarsest=0.1, budget=0.05, by_mean=True),
    },
    few=True,
)

MEASURES = {"picture": _IMAGE, "image": _IMAGE, "frames": _IMAGE, "logits": _LOGITS}
"""Role of an output -> its measure."""

SHARE_OF_A_SEED = 0.1
"""Mean difference allowed to a seeded search, as a multiple of the difference between two seeds."""

MAX_OF_A_SEED = 0.5
"""The largest such multiple, where the rounding of a transform needs more."""


def measure_for(port: Port) -> Measure:
    """Return the measure of an output: by its role, its peak that of its range.

    Raises:
        NystraError: Outputs of this role are not compared.
    """
    if port.role not in MEASURES:
        raise NystraError(
            f"the output {port.name!r} has the role {port.role!r}, expected one of "
            f"{', '.join(MEASURES)}"
        )
    measure = MEASURES[port.role]
    if measure is not _IMAGE or port.range in (None, (0.0, 1.0)):
        return measure
    low, high = port.range or (0.0, 1.0)
    figures = partial(image_figures, low=low, high=high)
    return replace(measure, figures=figures, peak=lambda _: high - low)
