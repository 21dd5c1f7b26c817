"""``nystra export``: checkpoint to validated ONNX file."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import NystraError
from ...core.option import Options, option
from ...core.option_kinds import File, Folder
from ...export.report.figures import figures_of
from ..console import echo, echo_error, in_flags, print_json, print_table, steps, warn
from ..flags.checkpoint_flags import add_checkpoint_arguments, hyper_from
from ..flags.option_flags import SHEET, add_options, add_output_arguments, option_values

if TYPE_CHECKING:
    from ...export.report.export_result import ExportResult

SUMMARY = "Export a checkpoint to one ONNX file that is checked against PyTorch."


_FILE = ("opset", "target", "with_preprocessing", "functions", "trace_limit")
"""Options of an export that say how the file is written, in the order of the help."""

_CHECKS = ("min_psnr", "calibrate", "speed", "keep")
"""Options of an export that say how the file is checked."""


@dataclass(frozen=True)
class PageOptions(Options):
    """Where the file is written, and the reports on it."""

    output: Path = option(
        File(
            Path(),
            ".onnx file or folder",
            short="o",
            metavar="FILE|FOLDER",
            default_text="the current folder",
        )
    )
    sheet: Path | None = option(SHEET)
    report: Path | None = option(
        Folder(
            None,
            "write a page there: figures, images, sites, and the plans that `mechanism` auto tried",
        )
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from ...export.options import ExportOptions
    from ..flags.plan_flags import (
        add_auto_arguments,
        add_mechanism_argument,
        add_parameter_arguments,
        add_plan_arguments,
    )

    parser.add_argument(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help=".safetensors, .pth or .pt file, name of a shipped network such as swinir_x2_w16, or "
        ".onnx file of another program",
    )
    add_mechanism_argument(parser, auto=True)
    add_options(parser, PageOptions, ("output",))
    add_options(parser, ExportOptions, ("precision", "static", "overwrite"))
    add_options(parser, PageOptions, ("sheet", "report"))
    add_output_arguments(parser)
    add_checkpoint_arguments(parser.add_argument_group("the network"))
    add_plan_arguments(parser.add_argument_group("single sites"))
    add_options(parser.add_argument_group("the file"), ExportOptions, _FILE)
    add_options(parser.add_argument_group("checks"), ExportOptions, _CHECKS)
    add_auto_arguments(parser)
    add_parameter_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code."""
    from ...export.options import ExportOptions
    from ...export.pipeline import export_model
    from ...export.report.page import check_report_folder, write_export_page
    from ...runtime.images.images import image_format
    from ..flags.plan_flags import plan_or_auto

    if args.report is not None:
        check_report_folder(args.report)
    options = ExportOptions(
        plan=plan_or_auto(args),
        hyper=hyper_from(args),
        **option_values(args, ExportOptions),
        suggest=not (args.mechanism or args.plan or args.quiet or not args.speed),
        command=args.command_line,
    )
    if args.sheet is not None:
        image_format(args.sheet)  # refused before anything long is done
    with steps(args, piped=True) as progress:
        result = export_model(args.checkpoint, args.output, options, progress)
        if args.sheet is not None:
            progress("sheet")
            _draw(result, args.sheet)
        page = None
        if args.report is not None:
            progress("report")
            page = write_export_page(result, args.report)
    if not args.quiet:
        for text in result.notes:
            echo_error(f"note: {in_flags(text)}")
        for text in result.warnings:
            warn(text)
    if args.json:
        print_json(_as_dict(result))
    elif not args.quiet:
        print_table(figures_of(result))
        if page is not None:
            echo(f"report: {page}")
        model = shlex.quote(str(result.model))
        echo(f"next: nystra run {model} {_example_arguments(result)}")
    return 0


def _example_arguments(result: ExportResult) -> str:
    """Return what ``nystra run`` takes after the model, with names of files for show."""
    from ...core.ports.port import CONDITION
    from ...runtime.tasks.registry import task_named

    facts = result.source.loaded.facts
    task = task_named(facts.task)
    source, target = ("IN", "OUT") if task is None else task.example
    words = [f"-i {source} -o {target}"]
    for port in facts.inputs:
        if port.role in ("mask", "reference"):
            words.append(f"--{port.role} {port.role}.png")
        elif port.role == CONDITION:
            words.append(f"--inputs {port.name}=VALUE")
    return " ".join(words)


def _draw(result: ExportResult, sheet: Path) -> None:
    from ...export.report.model_sheet import draw_model_sheet, sheet_restorer
    from ...runtime.session import Session

    try:
        session = Session(result.model)
        draw_model_sheet(sheet, session, sheet_restorer(sheet, session), result.source)
    except NystraError as error:
        raise type(error)(f"{result.model} was written, the sheet was not: {error}") from error


def _as_dict(result: ExportResult) -> dict[str, Any]:
    return {
        "model": str(result.model),
        "files": [str(path) for path in result.files],
        "nodes": result.nodes,
        "nystra_nodes": result.nystra_nodes,
        "precision": result.precision,
        "bytes": result.model.stat().st_size,
        "sites": {path: site.as_dict() for path, site in result.source.resolved.items()},
        "unchanged": dict(result.unchanged),
        "against_torch": result.validation.as_dict(),
        "fidelity": result.fidelity.as_dict(),
        "planning": result.proposal.figures or None,
        "settings": result.settings.figures or None,
        "speed": None if result.speed is None else result.speed.as_dict(),
        "suggestion": result.suggestion or None,
        "seconds": dict(result.seconds),
        "notes": list(result.notes),
        "warnings": list(result.warnings),
    }
