"""``nystra export``: checkpoint to validated ONNX file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import NystraError
from ...export.report.figures import figures_of
from ..console import echo, print_json, print_table, warn
from ..flags.checkpoint_flags import add_checkpoint_arguments, hyper_from
from ..flags.option_flags import add_options, option_values
from ..flags.output_flags import add_output_arguments
from ..progress import steps

if TYPE_CHECKING:
    from ...export.pipeline import ExportResult

SUMMARY = "Export a checkpoint to one ONNX file that is checked against PyTorch."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from ...export.options import ExportOptions
    from ..flags.auto_flags import add_auto_arguments
    from ..flags.plan_flags import add_plan_arguments

    parser.add_argument("checkpoint", type=Path, help=".safetensors, .pth or .pt file")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path(),
        metavar="FILE|FOLDER",
        help=".onnx file or existing folder (default: the current folder)",
    )
    add_plan_arguments(parser)
    add_auto_arguments(parser)
    add_checkpoint_arguments(parser)
    add_options(
        parser, ExportOptions, ("opset", "static", "precision", "target", "with_preprocessing")
    )
    functions = parser.add_mutually_exclusive_group()
    functions.add_argument(
        "--no-functions", action="store_true", help="no bodies: the file needs the library"
    )
    functions.add_argument(
        "--inline", action="store_true", help="plain ONNX without the nystra domain"
    )
    add_options(parser, ExportOptions, ("calibrate", "min_psnr", "overwrite", "keep"))
    parser.add_argument("--no-speed", action="store_true", help="do not time the file")
    parser.add_argument(
        "--sheet",
        type=Path,
        metavar="OUT.png",
        help="draw photographs: input, full attention, exported, difference",
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FOLDER",
        help="write a page there: figures, pictures, sites, how to load the file; with --attn "
        "auto another that says why (needs matplotlib)",
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code."""
    from ...export.options import ExportOptions
    from ...export.pipeline import export_model
    from ...export.report.export_page import check_report_folder, write_export_page
    from ...runtime.images.images import picture_format
    from ..flags.auto_flags import plan_or_auto

    if args.report is not None:
        check_report_folder(args.report)
    options = ExportOptions(
        plan=plan_or_auto(args),
        hyper=hyper_from(args),
        functions="none" if args.no_functions else "inline" if args.inline else "attached",
        speed=not args.no_speed,
        **option_values(args, ExportOptions),
        suggest=not (args.mechanism or args.plan or args.no_speed or args.quiet),
        command=args.command_line,
    )
    if args.sheet is not None:
        picture_format(args.sheet)  # refused before anything long is done
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
        for text in result.warnings:
            warn(text)
    if args.json:
        print_json(_as_dict(result))
    elif not args.quiet:
        print_table(figures_of(result))
        if page is not None:
            echo(f"report: {page}")
    return 0


def _draw(result: ExportResult, sheet: Path) -> None:
    """Draw the sheet of the file that was just written, full attention beside it."""
    from ...export.report.model_sheet import draw_model_sheet, sheet_restorer
    from ...runtime.session import Session

    try:
        session = Session(result.model)
        draw_model_sheet(sheet, session, sheet_restorer(sheet, session), result.source)
    except NystraError as error:
        raise type(error)(f"{result.model} is written; the sheet is not: {error}") from error


def _as_dict(result: ExportResult) -> dict[str, Any]:
    return {
        "model": str(result.model),
        "files": [str(path) for path in result.files],
        "nodes": result.nodes,
        "precision": result.precision,
        "bytes": result.model.stat().st_size,
        "sites": {path: site.as_dict() for path, site in result.source.resolved.items()},
        "against_torch": result.validation.as_dict(),
        "fidelity": result.fidelity.as_dict(),
        "planning": result.proposal.figures or None,
        "speed": None if result.speed is None else result.speed.as_dict(),
        "suggestion": result.suggestion or None,
        "warnings": list(result.warnings),
    }
