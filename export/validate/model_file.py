"""The file against PyTorch with the same plan, at several sizes, on this machine."""

from __future__ import annotations

import math
import platform
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ... import __version__
from ...core.errors import ExportError, NystraError
from ...core.ports.port import join_sides
from ...plugins.library import library_path
from ...runtime.backends import find_backend
from ...runtime.checking.validation import ValidationReport, validate_against_references
from ...runtime.metrics.measures import worst_figures
from ...runtime.model.references import References
from ...runtime.session import Session
from ..progress import Progress

FILE, COPY = "ort-cpu", "twin"
"""Labels in a manifest of what was run: the file or its rounded float32 copy."""


@dataclass
class FileValidation:
    """The results.

    Attributes:
        tolerances: Largest difference allowed, per size.
        allowed_for: The reason of each of them.
        reports: Backend label to the sizes' figures, in JSON form; ``twin`` is the rounded float32
            copy of a file of low precision.
        passed: Every size passed on every backend.
        figures: The worst of each figure against PyTorch, by name.
        faults: One sentence for each size that failed.
        seconds_per_pixel: Seconds per pixel of the last run, with the library if there is one.
    """

    tolerances: list[float]
    allowed_for: list[str]
    reports: dict[str, Any] = field(default_factory=dict)
    passed: bool = True
    figures: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    seconds_per_pixel: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "passed": self.passed,
            "tolerances": self.tolerances,
            "allowed_for": self.allowed_for,
            "backends": self.reports,
        }


def file_steps(precision: str, *, bodies: bool, copied: bool) -> int:
    """Return the number of runs, and so of progress steps, of `validate_file`."""
    return len(_runs(precision, bodies=bodies, copied=copied))


_Run = tuple[str, str | Path | None]
"""A file to run and its library."""


def _runs(precision: str, *, bodies: bool, copied: bool) -> list[_Run]:
    """Return the files to run, and their libraries.

    A file that the CPU cannot compute is validated by its rounded float32 copy alone.
    """
    runs_on_cpu = precision in find_backend("ort-cpu").precisions
    subjects = [FILE] * (runs_on_cpu or not copied) + [COPY] * copied
    return [(subject, library) for subject in subjects for library in libraries(bodies=bodies)]


def validate_file(
    path: Path,
    references: References,
    *,
    bodies: bool,
    progress: Progress,
    rounded_copy: Path | None = None,
) -> FileValidation:
    """Compare a model file with recorded references.

    Args:
        path: Path of the file.
        references: Those of the plain network.
        bodies: The file runs without the operator library.
        progress: Called with the name of each step.
        rounded_copy: The rounded copy of a file of low precision (see
            `graph.precision.rounded_copy`): compared too, and alone for bfloat16, which
            onnxruntime's CPU cannot compute in.

    Raises:
        BackendUnavailableError: The file needs the library and there is none.
        ExportError: It fails at one of the sizes.
    """
    meta = references.meta
    validation = FileValidation(list(meta["tolerances"]), list(meta["allowed_for"]))
    files = {FILE: path} if rounded_copy is None else {FILE: path, COPY: rounded_copy}
    for name, library in _runs(
        meta.get("precision", "fp32"), bodies=bodies, copied=rounded_copy is not None
    ):
        label = name if library is None else f"{name}+library"
        progress(f"{files[name].name} in {label}")
        report, seconds = _compare(files[name], library, references)
        validation.seconds_per_pixel = seconds / _pixels(report)
        validation.reports[label] = report.as_dict()
        validation.passed &= report.passed
        validation.figures = worst_figures([validation.figures, report.figures])
        for size in report.sizes:
            shape = join_sides(next(iter(size.shapes.values())))
            validation.faults += [f"{label} at {shape}: {text}" for text in size.findings]
    return validation


def _compare(
    path: Path, library: str | Path | None, references: References
) -> tuple[ValidationReport, float]:
    session, begun = Session(path, library=library), time.perf_counter()
    try:
        report = validate_against_references(session, references)
    except NystraError as error:
        raise ExportError(
            f"the file fails at sizes other than the traced one: {describe_failure(error)}. Give "
            "`static` with a fixed size"
        ) from error
    return report, time.perf_counter() - begun


def describe_failure(error: NystraError) -> str:
    """Return why a file that is not kept fails, without its path and an engine's own text."""
    text = str(error).partition("\n")[0].rstrip(".")
    memory = re.search("not enough memory.*", text)
    if memory is not None:
        return memory[0]
    failed = re.search(r" on ([^:]+): .*running (\w+) node", text)
    return text if failed is None else f"its operator {failed[2]} does not take {failed[1]}"


def _pixels(report: ValidationReport) -> int:
    pixels = 0
    for size in report.sizes:
        first_shape = next(iter(size.shapes.values()))
        pixels += math.prod(first_shape[-2:])
    return pixels


def libraries(*, bodies: bool) -> list[str | Path | None]:
    """Return the libraries that a file is validated with; None: the operators' bodies."""
    try:
        built: list[str | Path | None] = [library_path()]
    except FileNotFoundError:
        built = [] if bodies else ["auto"]
    return [None, *built] if bodies else built


def tool_versions() -> dict[str, str]:
    """Return the versions of the programs that wrote and validated a file."""
    from importlib.metadata import version

    own = {"nystra": __version__, "python": platform.python_version()}
    return own | {name: version(name) for name in ("numpy", "torch", "onnx", "onnxscript")}
