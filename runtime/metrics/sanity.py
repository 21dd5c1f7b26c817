"""Outputs that are wrong for any reference: NaN, infinity, a flat image, another range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import NystraError

FLAT = 1e-6
"""An output is flat if its largest and smallest value differ by less than this."""

_MARGIN, _MAX_BEYOND = 0.25, 0.5
"""Largest share of an output that may be farther outside 0..1 than the first number."""
_LOST = 0.02
"""Least contrast (standard deviation) of an output as a share of its input's."""
_FLAT_SOURCE, _DARK, _ALL = 0.02, 0.25, 0.99
"""Contrast and mean of a plain gray input, and the share of its output that is white or black."""


@dataclass(frozen=True)
class Finding:
    """A defect of an output.

    Attributes:
        kind: ``nan``, ``inf`` or ``flat``.
        message: A sentence that names the output and the extent of the defect.
    """

    kind: str
    message: str


def find_problems(
    output: npt.NDArray[Any],
    name: str = "output",
    expected: npt.NDArray[Any] | None = None,
) -> list[Finding]:
    """Return the defects of an output (NaN, infinity, constant values); empty if there are none.

    Args:
        output: Any shape, floating.
        name: What to call it in the messages.
        expected: The reference, if there is one: if it is flat, a flat output is correct.
    """
    values = np.asarray(output)
    findings = []
    bad_nan = int(np.count_nonzero(np.isnan(values)))
    bad_inf = int(np.count_nonzero(np.isinf(values)))
    if bad_nan:
        findings.append(Finding("nan", f"{name}: {bad_nan} of {values.size} values are NaN"))
    if bad_inf:
        findings.append(Finding("inf", f"{name}: {bad_inf} of {values.size} values are infinite"))
    if not findings and _flat(values) and not (expected is not None and _flat(expected)):
        findings.append(
            Finding("flat", f"{name}: all {values.size} values are {float(values.flat[0]):.6g}")
        )
    return findings


def beyond_doubt(pixels: npt.NDArray[Any]) -> str:
    """Return why a finite output (H, W, C) has other values than 0..1, or an empty text."""
    beyond = float(np.mean((pixels > 1 + _MARGIN) | (pixels < -_MARGIN)))
    if beyond > _MAX_BEYOND:
        return f"{beyond:.0%} of the output is far outside 0..1, and would be white or black"
    return ""


def contrast_doubt(pixels: npt.NDArray[Any], source: npt.NDArray[Any]) -> str:
    """Return that an output is white, black or flat and its input is not, or an empty text.

    So is the output of a model that is given other values than it takes, and that of a model that
    finds nothing in an image.

    Args:
        pixels: (H, W, C), the output, finite.
        source: (h, w, c) in 0..1, the input.
    """
    clipped = np.clip(pixels, 0, 1)
    mean, contrast = float(np.mean(clipped)), float(np.std(source))
    if contrast < _FLAT_SOURCE:
        gray = _DARK < float(np.mean(source)) < 1 - _DARK
        even = np.mean(clipped >= 1) > _ALL or np.mean(clipped <= 0) > _ALL
        return f"the output is all {'white' if mean > 0.5 else 'black'}" if gray and even else ""
    if float(np.std(clipped)) < _LOST * contrast:
        return f"the output has almost no contrast, with a mean of {mean:.2g} in 0..1"
    return ""


def max_abs(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the largest absolute difference in float64; NaN where either holds NaN.

    Raises:
        NystraError: The shapes differ.
    """
    if got.shape != expected.shape:
        raise NystraError(f"got an array of shape {got.shape}, expected {expected.shape}")
    if got.size == 0:
        return 0.0
    return float(np.max(np.abs(got.astype(np.float64) - expected.astype(np.float64))))


def _flat(values: npt.NDArray[Any]) -> bool:
    return values.size > 16 and float(np.max(values) - np.min(values)) < FLAT
