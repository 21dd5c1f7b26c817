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
from ..build.attention_memory import quadratic_bytes
from ..build.stage import Built, serialized
from ..load.stage import Prepared
from ..plan.stage import Planned
from .fidelity import Fidelity, measure_fidelity
from .model_file import Judgement, judge, libraries
from .references import record_references
from .speed import Speed, compare_speed, timed_size


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
    facts = prepared.loaded.facts
    output = facts.outputs[0]
    references = record_references(
        network,
        planned.resolved,
        prepared.feeds,
        transform,
        progress,
        output,
        facts.architecture,
        () if built.outcome is None else built.outcome.exact,
    )
    with tempfile.TemporaryDirectory() as folder:
        trial = _saved(Path(folder, "model.onnx"), built.model)
        twin = None
        if built.outcome is not None:
            twin = _saved(Path(folder, "twin.onnx"), built.outcome.twin)
        bodies = options.functions != "none"
        judgement = judge(trial, references, bodies=bodies, progress=progress, twin=twin)
        fidelity = measure_fidelity(
            network, planned.resolved, prepared.samples, prepared.trained, progress, output
        )
        speed = None
        if built.full is not None and judgement.passed:
            progress("speed")
            full = _saved(Path(folder, "full.onnx"), built.full)
            quadratic = quadratic_bytes(network, facts, planned.neutral)
            size = timed_size(facts, quadratic, judgement.pace)
            kernels = options.functions != "inline" and len(libraries(bodies=True)) > 1
            speed = compare_speed(trial, full, size, kernels, judgement.pace)
    minimum = options.min_psnr
    below = _below(fidelity, minimum, network, planned)
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
    fidelity: Fidelity, minimum: float | None, network: nn.Module, planned: Planned
) -> tuple[str, ...]:
    """Return a sentence for each figure that is worse than wanted."""
    measure = fidelity.measure
    wanted = measure.warning if minimum is None else minimum
    limit = f"{'below' if measure.higher else 'above'} {measure.text(wanted)}"
    texts = []
    if measure.misses(fidelity.mean, wanted):
        text = f"the plan gives {measure.text(fidelity.mean)} against full attention, {limit}"
        if fidelity.sites:
            worst = ", ".join(f"{cost.path} ({cost.error:.0%} off)" for cost in fidelity.sites[:3])
            tries = improvements(network, planned.resolved, fidelity.sites[0].path)
            text += f". Worst sites: {worst}. Try {tries}"
        texts.append(text)
    trained = fidelity.trained_mean
    if trained is not None and measure.misses(trained, wanted):
        texts.append(
            f"this window and plan give {measure.text(trained)} against the network at its trained "
            f"window, {limit}. Omit --window, or train the network at it"
        )
    return tuple(texts)
