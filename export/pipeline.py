"""Checkpoint to model file: prepare, plan, build, validate, write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .graph.stage import build, build_steps
from .load.source import Source
from .load.stage import Prepared, prepare
from .options import ExportOptions
from .plan.proposal import Proposal
from .plan.stage import Planned, make_plan
from .progress import Steps
from .report.stage import WRITING_STEPS, write
from .report.suggestion import suggestion
from .validate.fidelity import Fidelity
from .validate.model_file import FileValidation
from .validate.speed import Speed
from .validate.stage import validate, validation_steps


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote and found.

    Attributes:
        model: The model file.
        files: Every file that was written.
        nodes: Nodes of the graph.
        precision: As ``nystra.precision`` says it.
        source: What the model was made of: the network, and what was done at each site.
        validation: The file against PyTorch.
        fidelity: The plan against full attention.
        speed: Against the full-attention file, or None.
        proposal: The plan as it was chosen, and what a search found.
        suggestion: What other mechanisms would do, where that is wanted and worth a word.
        warnings: One sentence each.
    """

    model: Path
    files: tuple[Path, ...]
    nodes: int
    precision: str
    source: Source
    validation: FileValidation
    fidelity: Fidelity
    speed: Speed | None
    proposal: Proposal
    suggestion: str
    warnings: tuple[str, ...]


def export_model(
    checkpoint: str | Path,
    output: str | Path = ".",
    options: ExportOptions | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> ExportResult:
    """Export a checkpoint to an ONNX file that is checked against PyTorch.

    Args:
        checkpoint: A ``.safetensors``, ``.pth`` or ``.pt`` file.
        output: A ``.onnx`` file or an existing folder; beside the file go the manifest
            ``<stem>.json``, the references ``<stem>.npz`` and the plan ``<stem>.plan.json``.
        options: How to export; None takes the defaults.
        progress: Is called with the name of each step, its number and how many there are.

    Returns:
        What was written and found.

    Raises:
        NystraError: Bad input; nothing is written.
        ExportError: The network cannot be traced; nothing is written.
        ValidationError: The file departs from PyTorch or the plan costs more than ``min_psnr``
            allows; ``<stem>.failed.json`` is written and no file that was there is touched.
    """
    steps = Steps(progress)
    prepared = prepare(Path(checkpoint), options or ExportOptions(), steps)
    planned = make_plan(prepared, Path(output), steps.within)
    steps.expect(
        build_steps(prepared, planned) + validation_steps(prepared, planned) + WRITING_STEPS
    )
    built = build(prepared, planned, steps)
    validated = validate(prepared, planned, built, steps)
    files = write(prepared, planned, built, validated, steps)
    return ExportResult(
        planned.target,
        files,
        len(built.model.graph.node),
        prepared.transform.label,
        Source(prepared.loaded, planned.resolved),
        validated.file,
        validated.fidelity,
        validated.speed,
        planned.proposal,
        _suggestion(prepared, planned),
        (*planned.warnings, *validated.warnings),
    )


def _suggestion(prepared: Prepared, planned: Planned) -> str:
    if not prepared.options.suggest:
        return ""
    loaded = prepared.loaded
    return suggestion(loaded.network, planned.resolved, prepared.samples, loaded.facts.outputs[0])
