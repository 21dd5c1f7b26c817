"""Stage 4: the file against PyTorch, the plan against full attention, and its speed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
from torch import nn

from ...runtime.model.references import References
from ..attention.advice import improvements
from ..fidelity import Fidelity, measure_fidelity
from ..judge import Judgement, judge
from ..references import record_references
from ..speed import Speed, compare_speed
from .building import Built, serialized
from .planning import Planned
from .preparing import Prepared

FIDELITY_WARNING = 35.0
"""PSNR against full attention, dB, below which an export warns."""


@dataclass(frozen=True)
class Judged:
    """What was found.

    Attributes:
        references: What a device without PyTorch checks the file by later.
        judgement: The file against PyTorch.
        fidelity: The plan against full attention.
        speed: Against the full-attention file, or None.
        warnings: One sentence each.
        failures: Why the file must not be written, one sentence each; empty where it may.
    """

    references: References
    judgement: Judgement
    fidelity: Fidelity
    speed: Speed | None
    warnings: tuple[str, ...]
    failures: tuple[str, ...]


def judge_all(
    prepared: Prepared, planned: Planned, built: Built, progress: Callable[[str], None]
) -> Judged:
    """Record references, run the file against them, measure the plan, and time the file.

    Raises:
        UnsupportedModelError: Rounding to the precision alone does too much to the pictures.
        BackendUnavailableError: The file needs the operator library and there is none.
    """
    network, transform, options = prepared.loaded.network, prepared.transform, prepared.options
    references = record_references(network, planned.resolved, prepared.feeds, transform, progress)
    with tempfile.TemporaryDirectory() as folder:
        trial = _saved(Path(folder, "model.onnx"), built.model)
        twin = None
        if built.outcome is not None:
            twin = _saved(Path(folder, "twin.onnx"), built.outcome.twin)
        bodies = options.functions != "none"
        judgement = judge(trial, references, bodies=bodies, progress=progress, twin=twin)
        fidelity = measure_fidelity(
            network, planned.resolved, prepared.samples, prepared.trained, progress
        )
        speed = None
        if built.full is not None and judgement.passed:
            progress("speed")
            full = _saved(Path(folder, "full.onnx"), built.full)
            smallest = min(prepared.feeds, key=lambda feeds: feeds["input"].size)
            speed = compare_speed(trial, full, smallest)
    minimum = options.min_psnr
    wanted = FIDELITY_WARNING if minimum is None else minimum
    below = _below(fidelity, wanted, network, planned)
    warnings = () if built.outcome is None else tuple(built.outcome.sentences())
    failures = tuple(judgement.faults)
    if minimum is None:
        warnings += below
    else:
        failures += below
    return Judged(references, judgement, fidelity, speed, warnings, failures)


def _saved(path: Path, model: onnx.ModelProto) -> Path:
    path.write_bytes(serialized(model))
    return path


def _below(
    fidelity: Fidelity, wanted: float, network: nn.Module, planned: Planned
) -> tuple[str, ...]:
    if fidelity.mean >= wanted:
        return ()
    text = f"the plan gives {fidelity.mean:.1f} dB against full attention, below {wanted:.1f} dB"
    if fidelity.sites:
        worst = ", ".join(f"{cost.path} ({cost.error:.0%} off)" for cost in fidelity.sites[:3])
        tries = improvements(network, planned.resolved, fidelity.sites[0].path)
        text += f". Worst sites: {worst}. Try {tries}"
    return (text,)
