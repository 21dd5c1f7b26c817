"""``nystra validate``: is the file correct, and how good are its results."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import NystraError
from ...core.option import Options, option
from ...core.option_kinds import Number, Switch
from ..console import echo, print_json, print_table, steps, warn
from ..flags.checkpoint_flags import add_checkpoint_arguments, hyper_from
from ..flags.option_flags import (
    CHECKPOINT,
    REFERENCES,
    SHEET,
    add_options,
    add_output_arguments,
    add_session_arguments,
    open_session,
    session_spec,
)
from ..flags.quality_flags import add_quality_arguments, check_requested, read_requested_qualities

if TYPE_CHECKING:
    from ...export.load.source import Source
    from ...runtime.session import Session
    from ...runtime.tasks.quality import QualityReport
    from ...runtime.tasks.restoration.restorer import Restorer
    from ..flags.quality_flags import Requested

SUMMARY = "Compare a model file with PyTorch, its recorded outputs, or ground truth."


@dataclass(frozen=True)
class ValidateOptions(Options):
    """What a file is compared with, besides inputs with a ground truth."""

    checkpoint: Path | None = option(CHECKPOINT)
    references: Path | None = option(REFERENCES)
    tolerance: float | None = option(
        Number(
            None,
            "largest difference allowed",
            0,
            real=True,
            metavar="X",
            default_text="that of the export",
        )
    )
    sheet: Path | None = option(
        SHEET,
        doc="draw input, exported, truth and difference of `images`, or of photographs; with "
        "`checkpoint` also full attention",
    )
    layerwise: bool = option(
        Switch(
            "name the first layer that differs from ort-cpu without the operator library; "
            "`tolerance` is then relative to each layer's largest magnitude"
        )
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", type=Path, help=".onnx file")
    add_options(parser, ValidateOptions, ("checkpoint", "references", "tolerance"))
    add_quality_arguments(parser)
    add_options(parser, ValidateOptions, ("sheet", "layerwise"))
    add_checkpoint_arguments(parser)
    add_session_arguments(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code: 1 when the file is wrong."""
    from ...export.pytorch.backend import TORCH_BACKENDS, register_torch
    from ...runtime.checking.measured import bodies_of, find_changes
    from ...runtime.checking.validation import validate_against_references

    requested = read_requested_qualities(args)
    if args.layerwise:
        return _layerwise(args, requested)
    if args.backend in TORCH_BACKENDS:
        register_torch(args.checkpoint, hyper_from(args))
    session = open_session(args)
    check_requested(session, requested)
    restorer = None if args.sheet is None else _restorer(args.sheet, session)
    with steps(args) as progress:
        source = _source(args, session.metadata, progress)
        references = _references(args, session.metadata, source, progress)
        report = validate_against_references(session, references, args.tolerance, progress)
        changes = find_changes(session, references)
        by_bodies = None
        if (bodies := bodies_of(session)) is not None:
            by_bodies = validate_against_references(
                bodies, references, args.tolerance, lambda step: progress(f"{step} by bodies")
            )
        passed = report.passed and not changes and (by_bodies is None or by_bodies.passed)
        measured = _measure(requested, session, source, progress)
        if restorer is not None:
            progress("sheet")
            _sheet(args, session, restorer, source)
    if args.json:
        document: dict[str, Any] = {
            **report.as_dict(),
            "passed": passed,
            "bodies": None if by_bodies is None else by_bodies.as_dict(),
            "changes": changes,
            "against": str(args.checkpoint or "recorded references"),
            "library_reason": session.library_reason,
            "assignment": session.assignment and session.assignment.as_dict(),
        }
        document |= {name: quality.as_dict() for name, quality in measured.items()}
        print_json(document)
    elif not args.quiet:
        _print(report, by_bodies, measured, session.library_reason)
    warnings = [text for each in measured.values() for text in each.warnings]
    for text in (*changes, *warnings):
        warn(text)
    return 0 if passed else 1


def _layerwise(args: argparse.Namespace, requested: Requested) -> int:
    from ...export.validate.layerwise import compare_layers
    from ...runtime.model.onnx_header import read_onnx_header

    if requested or args.sheet is not None:
        names = [f"`{name}`" for _, options in requested for name in options.list_changes()]
        names += [] if args.sheet is None else ["`sheet`"]
        raise NystraError(f"`layerwise` compares layers only: omit {', '.join(names)}")
    if args.precision is not None:
        raise NystraError("--layerwise computes in the precision of the file: omit --precision")
    header = read_onnx_header(args.model)
    with steps(args) as progress:
        source = _source(args, header.metadata, progress)
        references = _references(args, header.metadata, source, progress)
        report = compare_layers(
            session_spec(args, args.model), references, args.tolerance, progress
        )
    passed = report["first"] is None
    if args.json:
        print_json({"passed": passed, **report})
    elif not args.quiet:
        echo(f"reference: {report['reference']}")
        echo(f"against:   {report['candidate']}")
        tensors = f"{report['compared']} tensors at {report['size']}"
        echo(f"compared:  {tensors}, up to the first that differs")
        echo(f"first difference: {report['first'] or 'none'}")
    return 0 if passed else 1


def _source(
    args: argparse.Namespace, metadata: dict[str, str], progress: Callable[[str], None]
) -> Source | None:
    if args.checkpoint is None:
        if args.module is not None:
            raise NystraError("--module is the code of --checkpoint: give both")
        return None
    if args.references is not None:
        raise NystraError("--checkpoint and --references contradict each other: give one")
    from ...export.load.source import load_source

    progress("load")
    return load_source(args.model, metadata, args.checkpoint, hyper_from(args))


def _references(
    args: argparse.Namespace,
    metadata: dict[str, str],
    source: Source | None,
    progress: Callable[[str], None],
) -> Any:
    from ...runtime.model.references import read_references

    if source is None:
        return read_references(args.references or args.model.with_suffix(".npz"))
    from ...export.validate.reference_run import reference_run

    return reference_run(args.model, metadata, source, progress)


def _measure(
    requested: Requested,
    session: Session,
    source: Source | None,
    progress: Callable[[str], None],
) -> dict[str, QualityReport]:
    def network() -> Any:
        from ...export.pytorch.network_session import NetworkSession

        assert source is not None  # or there is no network
        return NetworkSession(source.exact())

    return {
        quality.name: quality.measure(
            session, options, progress, None if source is None else network
        )
        for quality, options in requested
    }


def _restorer(sheet: Path, session: Session) -> Restorer:
    from ...export.report.model_sheet import sheet_restorer

    return sheet_restorer(sheet, session)


def _sheet(
    args: argparse.Namespace, session: Session, restorer: Restorer, source: Source | None
) -> None:
    from ...export.report.model_sheet import UserImages, draw_model_sheet
    from ...runtime.tasks.restoration.options import RunOptions

    images = None
    if args.images is not None:
        further = {"mask": args.mask, "reference": args.reference, "inputs": args.inputs}
        auxiliary = RunOptions(**further).auxiliary()
        images = UserImages(Path(args.images), Path(args.truth), auxiliary)
    draw_model_sheet(args.sheet, session, restorer, source, images)


def _mean(size: Any) -> str:
    if size.mean_tolerance is None or size.max_abs <= size.tolerance:
        return ""
    return f", or mean {size.mean_abs:.1e} of {size.mean_tolerance:.1e}"


def _print(
    report: Any, by_bodies: Any, measured: Mapping[str, QualityReport], library_reason: str
) -> None:
    from ...runtime.metrics.measures import FIGURES

    titles = [FIGURES[name].title for name in report.figures]
    rows: list[tuple[str, ...]] = [("size", "max difference", "allowed", *titles, "verdict")]
    rows += [_size_row(size, report.figures) for size in report.sizes]
    if by_bodies is not None:
        rows += [_size_row(size, report.figures, " bodies") for size in by_bodies.sizes]
    print_table(rows)
    echo(library_reason)
    for quality in measured.values():
        print_table(quality.rows())
        for note in quality.notes():
            echo(note)


def _size_row(size: Any, names: Iterable[str], by: str = "") -> tuple[str, ...]:
    from ...runtime.checking.validation import sides_text
    from ...runtime.metrics.measures import FIGURES

    return (
        sides_text(size.shapes) + by,
        f"{size.max_abs:.1e}",
        f"{size.tolerance:.1e}" + _mean(size),
        *(FIGURES[name].text(size.figures.get(name, math.nan)) for name in names),
        "; ".join(size.findings) or "passed",
    )
