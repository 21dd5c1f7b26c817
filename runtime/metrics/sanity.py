"""Outputs that are wrong for any reference: NaN, infinity, a flat image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import NystraError

FLAT = 1e-6
"""An output is flat if its largest and smallest value differ by less than this."""


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
    """Return whether all values of an array are equal; arrays of too few values are never flat."""
    return values.size > 16 and float(np.max(values) - np.min(values)) < FLAT
