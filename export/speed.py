"""The planned file against the full-attention file, timed as ``nystra bench`` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..models.facts import Facts
from ..plugins.ports.port import Size, picture_size
from ..runtime.timing.bench import LIBRARY_BACKEND, bench, session_configuration
from ..runtime.timing.rows import Row

_SIDE = 256
"""Of the picture, where the file takes any: what a tile of a user is like."""

_LARGEST_ATTENTION = 1 << 30
"""Bytes that exact attention may take at the size that is timed."""

_SECONDS, _RUNS = 5.0, 20


@dataclass(frozen=True)
class Speed:
    """Median seconds of one picture, and the ratio of interleaved runs.

    Attributes:
        planned: Seconds of the planned file.
        full: Seconds of the full-attention file.
        ratio: Full over planned, median over the rounds; above 1 the plan is faster.
        spread: The same, a quarter of the rounds below and a quarter above.
        size: Height and width of the picture.
        library: Both ran with the operator library.
    """

    planned: float
    full: float
    ratio: float
    spread: tuple[float, float]
    size: tuple[int, int]
    library: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "planned_seconds": self.planned,
            "full_seconds": self.full,
            "ratio": self.ratio,
            "spread": list(self.spread),
            "size": list(self.size),
            "library": self.library,
        }


def timed_size(facts: Facts, quadratic: float) -> tuple[int, int]:
    """Return the height and width that a user would run: the only ones, or 256x256.

    Args:
        facts: Of the network.
        quadratic: B, where exact attention to n pixels takes b n^2 bytes; the side is halved until
            that is bearable.
    """
    if facts.sides is not None:
        return facts.sides["height"], facts.sides["width"]
    side = _SIDE
    while side > 32 and quadratic * side**4 > _LARGEST_ATTENTION:
        side //= 2
    return side, side


def compare_speed(planned: Path, full: Path, size: tuple[int, int], library: bool) -> Speed | None:
    """Time two files in interleaved runs, each in its own process; None where one cannot run.

    Args:
        planned: The file of the plan.
        full: The same with full attention.
        size: Height and width of the picture.
        library: Run both with the operator library.
    """
    backend = LIBRARY_BACKEND if library else "ort-cpu"
    configurations = [session_configuration(path, backend) for path in (planned, full)]
    sizes: list[Size] = [picture_size(*size)]
    rows: list[Row] = bench(configurations, sizes, seconds=_SECONDS, runs=_RUNS)
    if any(row.reason is not None for row in rows):
        return None
    first, second = rows
    ratios = [b / max(a, 1e-12) for a, b in zip(first.times, second.times, strict=False)]
    low, middle, high = (float(np.percentile(ratios, share)) for share in (25, 50, 75))
    return Speed(first.percentile(50), second.percentile(50), middle, (low, high), size, library)
