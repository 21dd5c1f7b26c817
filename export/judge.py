"""The file against PyTorch with the same plan, at several sizes, on what this machine has."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import __version__
from ..models.facts import Facts
from ..plugins.library import library_path
from ..runtime.references import ReferenceCase, References
from ..runtime.session import Session
from ..runtime.validation import validate_against_references
from .attention.mechanism import SiteParameters
from .attention.site import swap
from .fidelity import Progress
from .pictures import validation_feeds
from .torch_backend import TorchBackend

SMALLEST_TOLERANCE = 1e-4
"""Largest difference allowed on 0..1 images where PyTorch itself is more precise than that."""

_SHARE_OF_A_SEED = 0.1
"""Mean difference allowed, over the one that another seed of a search makes."""


@dataclass
class Judgement:
    """What was found.

    Attributes:
        tolerances: largest difference allowed, a size.
        reports: backend label to the sizes' figures, in JSON form.
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


def record_references(
    network: nn.Module,
    resolved: Mapping[str, SiteParameters],
    facts: Facts,
    static: tuple[int, ...] | None,
    progress: Progress,
) -> References:
    """Run the planned network at the validation sizes and keep inputs, outputs and tolerances.

    The tolerance of a size is the larger of 1e-4 and twice the difference between the float32
    and the float64 run of the plain network.

    Where a seeded search takes part, rounding may turn the order of two matches that score the
    same to the last digits; few pixels then change, and by much. There a size also has a tolerance
    of the mean difference: a tenth of what another seed changes, so that a file whose search
    finds other matches still fails.

    Args:
        network: the loaded network.
        resolved: parameters of every site.
        facts: of the network.
        static: the only input shape, or None.
        progress: is called with the name of each step.
    """
    plain = swap(network, resolved)
    searching = any(one.searches for one in resolved.values())
    others = {path: one.reseeded() for path, one in resolved.items()}
    reseeded = TorchBackend(swap(network, others)) if searching else None
    single, double = TorchBackend(plain), TorchBackend(plain, torch.float64)
    cases, tolerances, mean_tolerances = [], [], []
    for feeds in validation_feeds(facts, static):
        if static is not None:
            feeds = {name: np.repeat(one, static[0], axis=0) for name, one in feeds.items()}
        progress("PyTorch {2}x{3}".format(*feeds["input"].shape))
        output = single.run(feeds)
        own = float(np.max(np.abs(output - double.run(feeds))))
        tolerances.append(max(SMALLEST_TOLERANCE, 2.0 * own))
        if reseeded is not None:
            change = float(np.mean(np.abs(output - reseeded.run(feeds))))
            mean_tolerances.append(_SHARE_OF_A_SEED * change)
        stored = {name: np.round(one * 255.0).astype(np.uint8) for name, one in feeds.items()}
        cases.append(ReferenceCase(stored, {"output": output}))
    meta: dict[str, Any] = {"tolerances": tolerances, "torch": torch.__version__}
    if mean_tolerances:
        meta["mean_tolerances"] = mean_tolerances
    return References(tuple(cases), meta)


def judge(path: Path, references: References, *, bodies: bool, progress: Progress) -> Judgement:
    """Compare a model file with recorded references.

    Args:
        path: of the file.
        references: of the plain network.
        bodies: the file runs without the operator library.
        progress: is called with the name of each step.

    Raises:
        BackendUnavailableError: the file needs the library and there is none.
    """
    judgement = Judgement(list(references.meta["tolerances"]))
    for library in _libraries(bodies):
        label = "ort-cpu" if library is None else "ort-cpu+library"
        progress(f"{path.name} in {label}")
        report = validate_against_references(Session(path, library=library), references)
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
