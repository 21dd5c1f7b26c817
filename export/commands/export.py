"""``nystra export``: checkpoint to validated ONNX file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...plugins.errors import NystraError
from .common import (
    add_checkpoint_arguments,
    add_output_arguments,
    hyper_from,
    print_json,
    print_table,
    steps,
    warn,
)

if TYPE_CHECKING:
    from ...runtime.checking.measures import Measure
    from ..judge import Judgement
    from ..pipeline import ExportResult
    from ..speed import Speed

SUMMARY = "Export a checkpoint to one ONNX file that is checked against PyTorch."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from .auto_flags import add_auto_arguments
    from .plan_flags import add_plan_arguments

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
    parser.add_argument("--opset", type=int, default=20, help="18, 19 or 20 (default: 20)")
    parser.add_argument(
        "--static", metavar="BxCxHxW", help="the only input shape (default: any size)"
    )
    parser.add_argument(
        "--precision",
        default="fp32",
        metavar="fp32|fp16|bf16",
        help="of weights and maps; sums, norms and the residual stream stay fp32 (default: fp32)",
    )
    parser.add_argument(
        "--target",
        metavar="tensorrt",
        help="with bf16: a file for TensorRT alone, its convolutions and attention bf16 too",
    )
    parser.add_argument(
        "--with-preprocessing",
        action="store_true",
        help="of a classifier: the file resizes, crops and normalises pictures of any size itself",
    )
    functions = parser.add_mutually_exclusive_group()
    functions.add_argument(
        "--no-functions", action="store_true", help="no bodies: the file needs the library"
    )
    functions.add_argument(
        "--inline", action="store_true", help="plain ONNX without the nystra domain"
    )
    parser.add_argument(
        "--calibrate", type=Path, metavar="FOLDER", help="your pictures to judge the plan on"
    )
    parser.add_argument(
        "--min-psnr",
        type=float,
        metavar="DB",
        help="fail below this PSNR against full attention, or against the trained window; with "
        "--attn auto what the plan has to keep",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the files of another export"
    )
    parser.add_argument("--keep", action="store_true", help="keep the model of a failed validation")
    parser.add_argument("--no-speed", action="store_true", help="do not time the file")
    parser.add_argument(
        "--sheet",
        type=Path,
        metavar="OUT.png",
        help="draw photographs: input, full attention, exported, difference",
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code."""
    from ...runtime.pictures.images import picture_format
    from ..options import ExportOptions
    from ..pipeline import export_model
    from .auto_flags import plan_or_planner

    options = ExportOptions(
        plan=plan_or_planner(args),
        hyper=hyper_from(args),
        opset=args.opset,
        static=_static(args.static),
        functions="none" if args.no_functions else "inline" if args.inline else "attached",
        precision=args.precision,
        target=args.target,
        calibrate=args.calibrate,
        min_psnr=args.min_psnr,
        overwrite=args.overwrite,
        keep=args.keep,
        speed=not args.no_speed,
        with_preprocessing=args.with_preprocessing,
        suggest=not (args.attn or args.plan or args.no_speed or args.quiet),
        command=args.command_line,
    )
    if args.sheet is not None:
        picture_format(args.sheet)  # refused before anything long is done
    with steps(args, piped=True) as progress:
        result = export_model(args.checkpoint, args.output, options, progress)
        if args.sheet is not None:
            progress("sheet")
            _draw(result, args.sheet)
    if not args.quiet:
        for text in result.warnings:
            warn(text)
    if args.json:
        print_json(_as_dict(result))
    elif not args.quiet:
        _print(result)
    return 0


def _draw(result: ExportResult, sheet: Path) -> None:
    """Draw the sheet of the file that was just written, full attention beside it."""
    from ...runtime.session import Session
    from .model_sheet import draw_model_sheet, sheet_restorer

    try:
        session = Session(result.model)
        draw_model_sheet(sheet, session, sheet_restorer(sheet, session), result.source)
    except NystraError as error:
        raise type(error)(f"{result.model} is written; the sheet is not: {error}") from error


def _static(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        shape = tuple(int(part) for part in text.split("x"))
    except ValueError:
        raise NystraError(f"--static {text!r} is not of the form 1x3x64x64") from None
    if min(shape) < 1:
        raise NystraError(f"--static {text!r} has a size below 1")
    return shape


def _as_dict(result: ExportResult) -> dict[str, Any]:
    return {
        "model": str(result.model),
        "files": [str(path) for path in result.files],
        "nodes": result.nodes,
        "precision": result.precision,
        "bytes": result.model.stat().st_size,
        "sites": {path: site.as_dict() for path, site in result.source.resolved.items()},
        "against_torch": result.judgement.as_dict(),
        "fidelity": result.fidelity.as_dict(),
        "planning": result.proposal.figures or None,
        "speed": None if result.speed is None else result.speed.as_dict(),
        "suggestion": result.suggestion or None,
        "warnings": list(result.warnings),
    }


def _print(result: ExportResult) -> None:
    counts: dict[str, int] = {}
    for site in result.source.resolved.values():
        counts[site.name] = counts.get(site.name, 0) + 1
    placed = [f"{name} at {count} sites" for name, count in counts.items()]
    attention = ", ".join(placed) or "as trained: none that nystra replaces"
    rows = [
        ("model", str(result.model)),
        ("attention", attention),
        *([("auto", result.proposal.summary)] if result.proposal.summary else []),
        ("graph", f"{result.nodes} nodes, {result.model.stat().st_size / 1e6:.2f} MB"),
        ("precision", _precision(result)),
        (
            "against PyTorch",
            _agreement(result.judgement),
        ),
    ]
    fidelity = result.fidelity
    rows.append(("against full", _against_full(result)))
    if fidelity.no_bias:
        rows.append(("  bias alone", _figures(fidelity.measure, fidelity.no_bias)))
    if fidelity.as_trained:
        rows.append(("against trained", _figures(fidelity.measure, fidelity.as_trained)))
    if result.speed is not None:
        rows.append(("speed", _speed(result.speed)))
    if result.suggestion:
        rows.append(("faster", result.suggestion))
    print_table(rows)


def _precision(result: ExportResult) -> str:
    from ...runtime.backends import find_backend

    text = result.precision
    if text in find_backend("ort-cpu").precisions:
        return text
    return f"{text}, which no CPU computes in: judged on a float32 twin that rounds where it does"


def _agreement(judgement: Judgement) -> str:
    sizes = [size for report in judgement.reports.values() for size in report["sizes"]]
    nearest = max(sizes, key=lambda size: size["max_abs"] / size["tolerance"])
    text = (
        f"max difference {nearest['max_abs']:.1e} at {len(judgement.tolerances)} sizes "
        f"(allowed {nearest['tolerance']:.1e}: {_reason(judgement, nearest)})"
    )
    turned = [size for size in sizes if size["max_abs"] > size["tolerance"]]
    if turned:
        worst = max(turned, key=lambda size: size["mean_abs"])
        text += (
            f", near-ties: mean difference {worst['mean_abs']:.1e} "
            f"(allowed {worst['mean_tolerance']:.1e})"
        )
    return f"{text} in {', '.join(judgement.reports)}"


def _reason(judgement: Judgement, size: dict[str, Any]) -> str:
    """Return what a size's tolerance is allowed for."""
    return judgement.allowed_for[judgement.tolerances.index(size["tolerance"])]


def _speed(speed: Speed) -> str:
    library = "with the library" if speed.library else "without the library"
    low, high = speed.spread
    return (
        f"{speed.ratio:.2f}x as fast as full attention at {speed.size[0]}x{speed.size[1]} (half of "
        f"the runs {low:.2f}x to {high:.2f}x), {speed.planned * 1e3:.0f} ms against "
        f"{speed.full * 1e3:.0f} ms, {library}"
    )


def _against_full(result: ExportResult) -> str:
    measure, values = result.fidelity.measure, result.fidelity.plan
    if all(value == measure.best for value in values.values()) and result.precision != "fp32":
        return f"same attention as full; {result.precision} rounding is in the line above"
    return _figures(measure, values)


def _figures(measure: Measure, values: dict[str, float]) -> str:
    if all(value == measure.best for value in values.values()):
        return "identical"
    mean, beyond = sum(values.values()) / len(values), "lowest" if measure.higher else "highest"
    worst = min(values.values()) if measure.higher else max(values.values())
    count = len(values)
    return f"{measure.text(mean)} mean, {measure.text(worst)} {beyond} of {count} pictures"
