"""The planned file against the full-attention file, timed as ``nystra bench`` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core.ports.port import Size, image_size, join_sides
from ...models.facts import Facts
from ...runtime.timing.bench import BODIES_BACKEND, bench, session_configuration
from ...runtime.timing.rows import Row
from ..sited_graph import FULL

_SIDE = 256
"""Side of the timed image if the file takes any size: that of a typical tile."""

_LARGEST_ATTENTION = 1 << 30
"""Most bytes of exact attention at the timed size."""

_SECONDS, _RUNS = 3.0, 20
"""Timing of a file ends after this many seconds or runs."""

_BOUND = 36.0
"""Approximate limit for timing both files, in seconds."""

_MIN_RUNS, _WARM_UP = 2, 2
"""Runs of a file, and warm-up runs, in that time."""

_LONGEST = 6.0
"""Seconds of a run from which on a file of a fixed size is not timed."""

_BOTH = 3.0
"""Runs of the planned file in the time of one run of each; full attention takes about two."""


FLOAT32 = "the same file in float32"
"""The reference where only the precision differs."""


@dataclass(frozen=True)
class Speed:
    """Median seconds of one image, and the ratio of interleaved runs.

    Attributes:
        planned: Seconds of the planned file.
        full: Seconds of the full-attention file.
        ratio: Full over planned, median over the rounds; above 1 the plan is faster.
        spread: The same, a quarter of the rounds below and a quarter above.
        size: Height and width of the image.
        library: Both ran with the operator library.
        other: Description of the other file.
    """

    planned: float
    full: float
    ratio: float
    spread: tuple[float, float]
    size: tuple[int, int]
    library: bool
    other: str = FULL

    @property
    def is_slower(self) -> bool:
        """Whether full attention was faster in three of four rounds."""
        return self.spread[1] < 1.0

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


def slower_warning(speed: Speed) -> str:
    """Return the warning about a plan that was measured to be slower than exact attention."""
    size = join_sides(speed.size)
    if speed.other == FLOAT32:
        return (
            f"on this machine the file has {speed.ratio:.2f}x the speed of {speed.other} at "
            f"{size}: keep float32 here"
        )
    advice = "`mechanism` full is exact and faster here"
    if speed.other != FULL:
        advice = f"{speed.other} is exact and faster here"
    return (
        f"the plan is slower than {speed.other}, {speed.ratio:.2f}x its speed at {size}: {advice}"
    )


def describe_untimed(size: tuple[int, int], seconds_per_pixel: float) -> str:
    """Return the sentence on a file that is not timed, since a run takes too long, or ""."""
    seconds = seconds_per_pixel * size[0] * size[1]
    if seconds <= _LONGEST:
        return ""
    return f"the file was not timed, since a run takes {seconds:.0f} s: `nystra bench` times it"


def choose_timed_size(facts: Facts, quadratic: float, seconds_per_pixel: float) -> tuple[int, int]:
    """Return the height and width to time: those of a fixed size, otherwise 256x256.

    The side is halved until exact attention fits into the memory and a few runs take an acceptable
    time.

    Args:
        facts: Facts of the network.
        quadratic: b, if exact attention for n pixels needs b n^2 bytes.
        seconds_per_pixel: Seconds per pixel of the planned file.
    """
    if facts.sides is not None:
        return facts.sides["height"], facts.sides["width"]
    side = _SIDE
    while side > 32 and (
        quadratic * side**4 > _LARGEST_ATTENTION
        or _rounds((side, side), seconds_per_pixel) < _MIN_RUNS
    ):
        side //= 2
    return facts.round_up(side), facts.round_up(side)


def _rounds(size: tuple[int, int], seconds_per_pixel: float) -> int:
    seconds = _BOTH * seconds_per_pixel * size[0] * size[1]
    return int(_BOUND / max(seconds, 1e-9)) - _WARM_UP


def compare_speed(
    planned: Path,
    full: Path,
    size: tuple[int, int],
    library: bool,
    seconds_per_pixel: float,
) -> Speed | None:
    """Time two files in interleaved runs, each in its own process; None if one cannot run.

    Args:
        planned: The file of the plan.
        full: The same with full attention.
        size: Height and width of the image.
        library: Run both with the operator library, if it supports them.
        seconds_per_pixel: As for `choose_timed_size`; slow files get fewer runs.
    """
    backend = "ort-cpu" if library else BODIES_BACKEND
    configurations = [session_configuration(path, backend) for path in (planned, full)]
    sizes: list[Size] = [image_size(*size)]
    runs = max(_MIN_RUNS, min(_RUNS, _rounds(size, seconds_per_pixel)))
    rows: list[Row] = bench(configurations, sizes, seconds=_SECONDS, runs=runs)
    if any(row.reason is not None for row in rows):
        return None
    first, second = rows
    times = zip(first.times, second.times, strict=False)
    ratios = [other / max(own, 1e-12) for own, other in times]
    quartiles = np.percentile(ratios, (25, 50, 75))
    low, middle, high = map(float, quartiles)
    kernels = library and all(row.operators != "bodies" for row in rows)
    medians = (first.percentile(50), second.percentile(50))
    return Speed(*medians, middle, (low, high), size, kernels)
