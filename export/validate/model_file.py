"""The file against PyTorch with the same plan, at several sizes, on what this machine has."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ... import __version__
from ...core.errors import ExportError, NystraError
from ...plugins.library import library_path
from ...runtime.backends import find_backend
from ...runtime.checking.measures import worst_figures
from ...runtime.checking.validation import ValidationReport, validate_against_references
from ...runtime.model.references import References
from ...runtime.session import Session
from .fidelity import Progress


@dataclass
class Judgement:
    """What was found.

    Attributes:
        tolerances: Largest difference allowed, a size.
        allowed_for: What each of them is allowed for.
        reports: Backend label to the sizes' figures, in JSON form; ``twin`` is the float32 file
            that rounds where a file of low precision does.
        passed: Every size passed on every backend.
        figures: The worst of each figure against PyTorch, by name.
        faults: One sentence for each size that failed.
        pace: Seconds a pixel of the last run, with the library where there is one.
    """

    tolerances: list[float]
    allowed_for: list[str]
    reports: dict[str, Any] = field(default_factory=dict)
    passed: bool = True
    figures: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    pace: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "passed": self.passed,
            "tolerances": self.tolerances,
            "allowed_for": self.allowed_for,
            "backends": self.reports,
        }


def judge(
    path: Path,
    references: References,
    *,
    bodies: bool,
    progress: Progress,
    twin: Path | None = None,
) -> Judgement:
    """Compare a model file with recorded references.

    Args:
        path: Of the file.
        references: Of the plain network.
        bodies: The file runs without the operator library.
        progress: Is called with the name of each step.
        twin: Of a file of low precision (see `graph.precision.twin`). It is judged too, and alone
            for bfloat16, which onnxruntime's CPU cannot compute in.

    Raises:
        BackendUnavailableError: The file needs the library and there is none.
        ExportError: It fails at one of the sizes.
    """
    meta = references.meta
    judgement = Judgement(list(meta["tolerances"]), list(meta["allowed_for"]))
    runs = [("ort-cpu", path, library) for library in libraries(bodies=bodies)]
    if twin is not None:
        if meta["precision"] not in find_backend("ort-cpu").precisions:
            runs = []
        runs += [("twin", twin, library) for library in libraries(bodies=bodies)]
    for name, file, library in runs:
        label = name if library is None else f"{name}+library"
        progress(f"{file.name} in {label}")
        session, begun = Session(file, library=library), time.perf_counter()
        try:
            report = validate_against_references(session, references)
        except NystraError as error:
            raise ExportError(
                f"the file fails at another size than it was traced at: {error} Give --static "
                "with the one size that it is to take"
            ) from error
        judgement.pace = (time.perf_counter() - begun) / _pixels(report)
        judgement.reports[label] = report.as_dict()
        judgement.passed &= report.passed
        judgement.figures = worst_figures([judgement.figures, report.figures])
        for size in report.sizes:
            shape = "x".join(map(str, next(iter(size.shapes.values()))))
            judgement.faults += [f"{label} at {shape}: {text}" for text in size.findings]
    return judgement


def _pixels(report: ValidationReport) -> int:
    return sum(math.prod(next(iter(size.shapes.values()))[-2:]) for size in report.sizes)


def libraries(*, bodies: bool) -> list[str | Path | None]:
    """Return the libraries that a file is judged with; None is without, by the bodies."""
    try:
        built: list[str | Path | None] = [library_path()]
    except FileNotFoundError:
        built = [] if bodies else ["auto"]
    return [None, *built] if bodies else built


def tool_versions(more: Sequence[str] = ("torch", "onnx", "onnxscript")) -> dict[str, str]:
    """Return the versions of what made and judged a file."""
    from importlib.metadata import version

    own = {"nystra": __version__, "python": platform.python_version()}
    return own | {name: version(name) for name in ("numpy", *more)}
