"""The file against PyTorch with the same plan, at several sizes, on what this machine has."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from .. import __version__
from ..models.facts import Facts
from ..plugins.errors import UnsupportedModelError
from ..plugins.library import library_path
from ..runtime.checking.validation import validate_against_references
from ..runtime.model.references import ReferenceCase, References
from ..runtime.session import Session
from .attention.mechanism import SiteParameters
from .attention.site import swap
from .fidelity import Progress
from .pictures import Feeds, validation_feeds
from .torch_backend import TorchBackend
from .yardstick import rounded_network

SMALLEST_TOLERANCE = 1e-4
"""Largest difference allowed on 0..1 images where PyTorch itself is more precise than that."""

LOWEST_PSNR = 40.0
"""Of a network that only rounds to a low precision, against itself, dB: 2.5 steps of 8 bits."""

_SHARE_OF_A_SEED = 0.1
"""Mean difference allowed, over the one that another seed of a search makes."""

_MOST_OF_A_SEED = 0.5
"""The same, at most, where a low precision asks for more."""


@dataclass
class Judgement:
    """What was found.

    Attributes:
        tolerances: largest difference allowed, a size.
        reports: backend label to the sizes' figures, in JSON form; ``twin`` is the float32 file
            that rounds where a file of low precision does.
        passed: every size passed on every backend.
        psnr: lowest PSNR against PyTorch, dB.
        faults: one sentence for each size that failed.
    """

    tolerances: list[float]
    reports: dict[str, Any] = field(default_factory=dict)
    passed: bool = True
    psnr: float = float("inf")
    faults: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"passed": self.passed, "tolerances": self.tolerances, "backends": self.reports}


def judged_feeds(facts: Facts, static: tuple[int, ...] | None) -> list[Feeds]:
    """Return the inputs by name at each validation size, in the batch that a file takes."""
    batch = 1 if static is None else static[0]
    return [
        {name: np.repeat(one, batch, axis=0) for name, one in feeds.items()}
        for feeds in validation_feeds(facts, static)
    ]


def record_references(
    network: nn.Module,
    resolved: Mapping[str, SiteParameters],
    facts: Facts,
    static: tuple[int, ...] | None,
    progress: Progress,
    precision: str = "fp32",
) -> References:
    """Run the planned network at the validation sizes and keep inputs, outputs and tolerances.

    The tolerance of a size is the largest of 1e-4, twice the difference between the float32 and
    the float64 run of the plain network, and, for a low precision, twice the difference between
    its yardstick (see `yardstick`) and the float64 run.

    Where a seeded search takes part, rounding may turn the order of two matches that score the
    same to the last digits; few pixels then change, and by much. There a size also has a tolerance
    of the mean difference: a tenth of what another seed changes, or twice the yardstick's mean
    difference, so that a file whose search finds other matches still fails; the yardstick's
    largest difference then allows nothing.

    Args:
        network: the loaded network.
        resolved: parameters of every site.
        facts: of the network.
        static: the only input shape, or None.
        progress: is called with the name of each step.
        precision: of the file: ``fp32``, ``fp16``, ``bf16`` or ``bf16-tensorrt``.

    Raises:
        UnsupportedModelError: rounding to the precision alone does too much to the pictures.
    """
    plain = swap(network, resolved)
    searching = any(one.searches for one in resolved.values())
    others = {path: one.reseeded() for path, one in resolved.items()}
    reseeded = TorchBackend(swap(network, others)) if searching else None
    single, double = TorchBackend(plain), TorchBackend(plain, torch.float64)
    low = precision.partition("-")[0]
    rounded = None if low == "fp32" else TorchBackend(rounded_network(plain, precision))
    cases, tolerances, mean_tolerances = [], [], []
    for feeds in judged_feeds(facts, static):
        progress("PyTorch {2}x{3}".format(*feeds["input"].shape))
        output, exact = single.run(feeds), double.run(feeds)
        own = float(np.max(np.abs(output - exact)))
        tolerance, mean = max(SMALLEST_TOLERANCE, 2.0 * own), 0.0
        if rounded is not None:
            error = rounded.run(feeds).astype(np.float64) - exact
            mean = 2.0 * float(np.mean(np.abs(error)))
            if not searching:
                _refuse_coarse(error, low, facts.architecture)
                tolerance = max(tolerance, 2.0 * float(np.max(np.abs(error))))
        tolerances.append(tolerance)
        if reseeded is not None:
            change = float(np.mean(np.abs(output - reseeded.run(feeds))))
            _refuse_turned(mean, change, low)
            mean_tolerances.append(max(_SHARE_OF_A_SEED * change, mean))
        stored = {name: np.round(one * 255.0).astype(np.uint8) for name, one in feeds.items()}
        cases.append(ReferenceCase(stored, {"output": output}))
    meta: dict[str, Any] = {
        "tolerances": tolerances,
        "precision": precision,
        "torch": torch.__version__,
    }
    if mean_tolerances:
        meta["mean_tolerances"] = mean_tolerances
    return References(tuple(cases), meta)


def _refuse_coarse(error: npt.NDArray[np.float64], low: str, architecture: str) -> None:
    found = -10.0 * np.log10(max(float(np.mean(error**2)), 1e-30))
    if not found >= LOWEST_PSNR:
        raise UnsupportedModelError(
            f"rounding to {low} alone leaves {found:.1f} dB of what this {architecture} gives, "
            f"and {LOWEST_PSNR:g} dB is the least: use --precision fp32"
        )


def _refuse_turned(mean: float, change: float, low: str) -> None:
    if mean > _MOST_OF_A_SEED * change:
        raise UnsupportedModelError(
            f"rounding to {low} makes the search find other matches: pictures change by "
            f"{mean / 2:.1e} in the mean, by another seed they change by {change:.1e}, so that no "
            f"check could tell a right file from a wrong one. Use --precision fp32, or another "
            "--attn"
        )


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
        path: of the file.
        references: of the plain network.
        bodies: the file runs without the operator library.
        progress: is called with the name of each step.
        twin: of a file of low precision (see `graph.precision.twin`). It is judged too, and alone
            for bfloat16, which onnxruntime's CPU cannot compute in.

    Raises:
        BackendUnavailableError: the file needs the library and there is none.
    """
    judgement = Judgement(list(references.meta["tolerances"]))
    runs = [("ort-cpu", path, library) for library in _libraries(bodies)]
    if twin is not None:
        if references.meta["precision"].startswith("bf16"):
            runs = []
        runs += [("twin", twin, library) for library in _libraries(bodies)]
    for name, file, library in runs:
        label = name if library is None else f"{name}+library"
        progress(f"{file.name} in {label}")
        report = validate_against_references(Session(file, library=library), references)
        judgement.reports[label] = report.as_dict()
        judgement.passed &= report.passed
        judgement.psnr = min(judgement.psnr, report.psnr)
        for size in report.sizes:
            shape = "x".join(map(str, size.shapes["input"]))
            judgement.faults += [f"{label} at {shape}: {text}" for text in size.findings]
    return judgement


def _libraries(bodies: bool) -> list[str | Path | None]:
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
