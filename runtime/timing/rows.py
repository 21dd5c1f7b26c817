"""The results of a benchmark: rows, their figures, and the machine."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...core.cpus import usable_cpus
from ...core.ports.port import Size, size_text
from ..machine.gpu import find_device
from .turns import median_ratio

UNAVAILABLE = 3
"""The exit code for a missing backend."""


@dataclass
class Row:
    """One model in one backend at one size.

    Attributes:
        model: The model file.
        backend: Name of the backend.
        size: Size of the inputs, by axis, in pixels.
        times: Seconds of every timed run, in order.
        device_times: Seconds of as many runs on the device without copies, in order; none where
            the backend computes on the CPU or cannot tell (`Session.device_seconds`).
        note: What the backend says of itself: which library, and why.
        operators: What computed the operators of nystra, as in `Session.operators`.
        assignment: Which execution provider computed which nodes, as `Session.assignment` has it.
        reason: Why there are no figures, or None.
        exit_code: Exit code of the error in `reason`: 3 for a missing backend, 2 for bad input.
        memory: ``before``, ``peak``, ``above`` in bytes; ``exact``.
        device_memory: Growth of the GPU's used memory in bytes, or None; see `DeviceMemory`.
        ratio: Median over the rounds of this time / that of the first row; below 1 this row is
            faster.
        ratio_to: The row of the divisor, as model and backend.
        pairs: Number of rounds of the ratio.
    """

    model: str
    backend: str
    size: Size
    times: list[float] = field(default_factory=list)
    device_times: list[float] = field(default_factory=list)
    note: str = ""
    operators: str = ""
    assignment: dict[str, Any] | None = None
    reason: str | None = None
    exit_code: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    device_memory: int | None = None
    ratio: float | None = None
    ratio_to: str | None = None
    pairs: int = 0

    @property
    def label(self) -> str:
        """Model, backend and size in a few words."""
        return f"{self.name} {size_text(self.size)}"

    @property
    def name(self) -> str:
        """The path of the model file as given, and the backend."""
        return f"{self.model} {self.backend}"

    def fail(self, reason: str, exit_code: int) -> None:
        """Record why there are no figures."""
        missing = exit_code == UNAVAILABLE
        self.reason = f"not available: {reason}" if missing else f"failed: {reason}"
        self.exit_code = exit_code

    def compare(self, first: Row) -> None:
        """Set the ratio to the first row, over the rounds in which both ran."""
        self.pairs = min(len(self.times), len(first.times))
        self.ratio = median_ratio(self.times, first.times)
        self.ratio_to = first.name

    def percentile(self, share: float) -> float:
        """Return a percentile of the times in seconds, linear between two runs."""
        return float(np.percentile(self.times, share))

    @property
    def device_seconds(self) -> float | None:
        """The median of the times on the device, or None."""
        return statistics.median(self.device_times) if self.device_times else None

    @property
    def images_per_second(self) -> float:
        """Runs per second."""
        return len(self.times) / max(sum(self.times), 1e-12)

    @property
    def megapixels(self) -> float:
        """Input pixels of a run, in millions."""
        return math.prod(self.size.values()) / 1e6

    @property
    def megapixels_per_second(self) -> float:
        """Input pixels per second, in millions."""
        return self.images_per_second * self.megapixels

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form of the row; times in seconds, memory in bytes."""
        document: dict[str, Any] = {
            "model": self.model,
            "backend": self.backend,
            "size": list(self.size.values()),
            "measured": self.reason is None,
            "reason": self.reason,
            "note": self.note,
            "operators": self.operators,
            "assignment": self.assignment,
        }
        if self.reason is not None:
            return document
        return document | {
            "runs": len(self.times),
            "p50": self.percentile(50),
            "p90": self.percentile(90),
            "p99": self.percentile(99),
            "device_p50": self.device_seconds,
            "mean": statistics.fmean(self.times),
            "images_per_second": self.images_per_second,
            "megapixels_per_second": self.megapixels_per_second,
            "memory": self.memory,
            "device_memory": self.device_memory,
            "ratio": self.ratio,
            "ratio_to": self.ratio_to,
            "pairs": self.pairs,
        }


@dataclass(frozen=True)
class ModelComparison:
    """The time of a model relative to that of the first model, in one backend at one size.

    Attributes:
        model: The model file.
        first: The first model file.
        backend: Name of the backend of both.
        size: Size of the inputs, by axis, in pixels.
        ratio: Median over the rounds of the model's time / that of the first model.
    """

    model: str
    first: str
    backend: str
    size: Size
    ratio: float

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "model": self.model,
            "first": self.first,
            "backend": self.backend,
            "size": list(self.size.values()),
            "ratio": self.ratio,
        }


def compare_models(rows: Sequence[Row]) -> list[ModelComparison]:
    """Return how each further model compares with the first, where both ran in a backend."""
    comparisons = []
    measured = [row for row in rows if row.reason is None]
    for row in measured:
        same = [r for r in measured if r.backend == row.backend and r.size == row.size]
        first = same[0]
        if row.model != first.model:
            ratio = median_ratio(row.times, first.times)
            comparisons.append(
                ModelComparison(row.model, first.model, row.backend, row.size, ratio)
            )
    return comparisons


def describe_machine(threads: int | None = None) -> dict[str, Any]:
    """Return the properties of this machine that affect figures, in JSON form.

    Args:
        threads: The requested threads, or None for the backend's own choice.
    """
    device = find_device()
    return {
        "gpu": None if isinstance(device, str) else device.name,
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cpus(),
        "threads": threads,
        "system": platform.platform(),
        "python": platform.python_version(),
        "nystra": __version__,
        "onnxruntime": find_version("onnxruntime", "onnxruntime-gpu"),
        "numpy": np.__version__,
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def find_version(*names: str) -> str | None:
    """Return the version of the first of some packages that is installed, or None."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
