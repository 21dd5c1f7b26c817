"""Checkpoint or module to model file: prepare, plan, build, validate, write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import TraceError
from ..models.own.network import OwnNetwork
from ..plugins.domain import DOMAIN
from .graph.stage import build, count_build_steps
from .load.source import Source
from .load.stage import Prepared, prepare, prepare_as_trained
from .options import ExportOptions
from .plan.stage import Planned, make_plan
from .progress import Progress, Steps
from .report.export_result import ExportResult
from .report.stage import WRITING_STEPS, write
from .tracing.time_limit import limit_traces
from .validate.stage import validate, validation_steps

if TYPE_CHECKING:
    from torch import nn


def export_model(
    checkpoint: str | Path,
    output: str | Path = ".",
    options: ExportOptions | None = None,
    progress: Progress = lambda _: None,
) -> ExportResult:
    """Export a checkpoint to an ONNX file that is checked against PyTorch.

    Args:
        checkpoint: A ``.safetensors``, ``.pth`` or ``.pt`` file.
        output: A ``.onnx`` file or a folder; the manifest ``<stem>.json``, the references
            ``<stem>.npz`` and the plan ``<stem>.plan.json`` are written next to the file.
        options: The options; None: the defaults.
        progress: Called with the name and number of each step and the number of steps.

    Returns:
        The result of the export.

    Raises:
        NystraError: Bad input; nothing is written.
        ExportError: The network cannot be traced; nothing is written.
        ValidationError: The file differs from PyTorch, or the plan is below ``min_psnr``;
            ``<stem>.failed.json`` is written and existing files are unchanged.
    """
    return _export(Path(checkpoint), Path(output), options, progress)


def export_module(
    module: nn.Module | OwnNetwork,
    output: str | Path,
    options: ExportOptions | None = None,
    progress: Progress = lambda _: None,
) -> ExportResult:
    """Export your own module to an ONNX file that is checked against PyTorch.

    Its scale, channels, size multiple and smallest side are measured; images of other sizes are
    padded before it, and its output is cropped.

    Args:
        module: The module with its weights, which is not modified. An `OwnNetwork` declares other
            inputs and outputs than one image each.
        output: As of `export_model`.
        options: The options; None: the defaults.
        progress: As of `export_model`.

    Returns:
        The result of the export.

    Raises:
        NystraError: As of `export_model`; nothing is written.
        UnsupportedModelError: The module fails at every size, or its outputs are not the declared
            ones.
        ExportError: As of `export_model`.
        ValidationError: As of `export_model`.
    """
    return _export(OwnNetwork.of(module), Path(output), options, progress)


def _export(
    source: Path | OwnNetwork,
    output: Path,
    options: ExportOptions | None,
    progress: Progress,
) -> ExportResult:
    options = options or ExportOptions()
    with limit_traces(options.trace_limit):
        return _export_within_limit(source, output, options, progress)


def _export_within_limit(
    source: Path | OwnNetwork,
    output: Path,
    options: ExportOptions,
    progress: Progress,
) -> ExportResult:
    steps = Steps(progress)
    prepared = prepare(source, options, steps)
    try:
        return _run_stages(prepared, output, steps)
    except TraceError as error:
        if not prepared.graph.are_found:
            raise
        reason = f"the attention that was found stays as trained; replacing it failed: {error}"
    return _run_stages(prepare_as_trained(source, prepared, reason, steps), output, steps)


def _run_stages(prepared: Prepared, output: Path, steps: Steps) -> ExportResult:
    if prepared.graph.are_found:
        steps("plan")  # timing of pieces, which does not belong to loading
    planned = make_plan(prepared, output, steps.within)
    steps.expect(
        count_build_steps(prepared, planned) + validation_steps(prepared, planned) + WRITING_STEPS
    )
    built = build(prepared, planned, steps)
    validated = validate(prepared, planned, built, steps)
    files = write(prepared, planned, built, validated, steps)
    steps.end()
    return ExportResult(
        planned.target,
        files,
        len(built.model.graph.node),
        sum(node.domain == DOMAIN for node in built.model.graph.node),
        prepared.transform.label,
        Source(prepared.loaded, planned.resolved),
        planned.unchanged,
        validated.file,
        validated.fidelity,
        validated.speed,
        planned.proposal,
        planned.settings,
        _suggest(prepared, planned),
        validated.notes,
        (*planned.warnings, *built.warnings, *validated.warnings),
        steps.seconds,
    )


def _suggest(prepared: Prepared, planned: Planned) -> str:
    if not prepared.options.suggest:
        return ""
    from .report.suggestion import suggestion

    loaded = prepared.loaded
    output = loaded.facts.outputs[0]
    return suggestion(loaded.network, planned.resolved, prepared.samples, output)
