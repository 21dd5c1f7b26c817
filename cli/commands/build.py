"""``nystra build``: an engine of a model file, or the verdict whether there can be one."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import NystraError
from ...runtime.session_spec import SessionSpec
from ..console import echo, print_json
from ..flags.option_flags import add_options
from ..flags.output_flags import add_output_arguments
from ..flags.sizes import parse_sizes
from ..progress import steps

if TYPE_CHECKING:
    from ...runtime.checking.dry_run import DryRunReport
    from ...runtime.engines.build import BuildOptions, BuiltEngine
    from ...runtime.engines.model import EngineModel

_OF_TENSORRT = ("output", "target", "dry-run", "sizes", "seconds", "engine", "trust")
"""Flags that OpenVINO has no use for."""

SUMMARY = "Build a TensorRT engine of a model file, or compile it with OpenVINO."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from ...runtime.engines.build import BuildOptions

    parser.add_argument("model", type=Path, help=".onnx file")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE|FOLDER",
        help="copy the engine there; a name without a suffix is a folder",
    )
    parser.add_argument(
        "--backend",
        default="tensorrt",
        help="tensorrt; tensorrt-rtx, which needs no GPU to build; or openvino, which compiles for "
        "one size on this machine's CPU (default: tensorrt)",
    )
    parser.add_argument(
        "--target",
        metavar="LIST",
        help="GPUs for tensorrt-rtx, such as sm86,sm89,sm120 (default: this machine's, else sm80 "
        "and newer)",
    )
    shapes = parser.add_argument_group("shapes (default: one tile)")
    add_options(shapes, BuildOptions, ("tile",))
    for flag, what in (("min", "smallest"), ("opt", "best"), ("max", "largest")):
        shapes.add_argument(f"--{flag}Shapes", metavar="input:1x3x64x64,...", help=f"{what} shapes")
    add_options(
        parser,
        SessionSpec,
        ("library", "precision"),
        library="the plugin library; none compiles the standard-operator bodies",
        precision="with openvino: compute in bfloat16",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="build nothing: say whether the builder takes the file; needs the TensorRT package, "
        "but no GPU",
    )
    parser.add_argument(
        "--sizes", metavar="HxW,...", help="pictures whose output shapes --dry-run compares"
    )
    add_options(parser, BuildOptions, ("seconds", "rebuild"))
    parser.add_argument(
        "--engine", type=Path, metavar="FILE", help="take this engine, built elsewhere (--trust)"
    )
    parser.add_argument(
        "--trust", action="store_true", help="whoever made --engine may run code here"
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code: 1 when the builder refuses the model."""
    from ...runtime.engines.build import BuildOptions, build_engine
    from ...runtime.engines.model import EngineModel
    from ...runtime.engines.profile import ShapeFlags
    from ...runtime.engines.toolkit import check_name
    from ...runtime.engines.transfer import take_engine

    if args.backend.partition(":")[0] == "openvino":
        return _compile(args)
    check_name(args.backend)
    _check(args)
    model = EngineModel.open(args.model, args.library)
    options = BuildOptions(
        args.backend,
        ShapeFlags(args.minShapes, args.optShapes, args.maxShapes),
        args.tile,
        tuple(args.target.split(",")) if args.target else (),
        args.seconds,
        args.rebuild,
    )
    if args.dry_run:
        return _dry_run(args, model, options)
    if args.engine is not None:
        built = take_engine(model, args.engine, trust=args.trust)
    else:
        with steps(args) as step:

            def progress(what: str, done: int, total: int) -> None:
                step(f"build: {what} {done}/{total}")

            built = build_engine(model, options, progress, step)
    _finish(args, model, built)
    return 0


def _compile(args: argparse.Namespace) -> int:
    """Compile with OpenVINO."""
    from ...runtime.backends.openvino.build import CompileOptions, compile_network
    from ...runtime.engines.profile import ShapeFlags

    values = vars(args)
    unused = [flag for flag in _OF_TENSORRT if values[flag.replace("-", "_")]]
    if unused:
        raise NystraError(
            f"--{unused[0]} is for TensorRT: openvino compiles for this machine alone"
        )
    _check(args)
    options = CompileOptions(
        args.backend,
        ShapeFlags(args.minShapes, args.optShapes, args.maxShapes),
        args.tile,
        args.precision,
        args.rebuild,
    )
    with steps(args) as step:
        built, reason = compile_network(args.model, options, args.library, step)
    _print_built(args, built, built.path, reason)
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.precision and args.backend.partition(":")[0] != "openvino":
        raise NystraError("--precision is for openvino: TensorRT computes as the file says")
    if args.target and args.backend != "tensorrt-rtx":
        raise NystraError("--target is for --backend tensorrt-rtx: TensorRT builds for its own GPU")
    if args.sizes and not args.dry_run:
        raise NystraError("--sizes is for --dry-run; an engine's sizes are --tile or --optShapes")
    if args.trust and args.engine is None:
        raise NystraError("--trust is for --engine: an engine built here needs none")


def _dry_run(args: argparse.Namespace, model: EngineModel, options: BuildOptions) -> int:
    from ...runtime.checking.dry_run import NOT_SHOWN, dry_run

    with steps(args) as step:
        step(f"ask {options.backend}")
        sizes = parse_sizes("--sizes", args.sizes) if args.sizes else None
        verdict = dry_run(model, options, sizes=sizes)
    if args.json:
        document = {"schema_version": 1, "accepted": verdict.accepted, "model": str(args.model)}
        reason = {"library_reason": model.library_reason, "not_shown": NOT_SHOWN}
        print_json({**document, **reason, **asdict(verdict)})
    elif not args.quiet or not verdict.accepted:
        _print_verdict(model, verdict)
    return 0 if verdict.accepted else 1


def _print_verdict(model: EngineModel, verdict: DryRunReport) -> None:
    from ...runtime.checking.dry_run import NOT_SHOWN

    rows = [("model", str(model.path)), ("builder", f"{verdict.backend} {verdict.version}")]
    if verdict.refusal is None:
        rows.append(("verdict", f"accepted: {verdict.layers} layers"))
    else:
        rows.append(("verdict", f"refused: {verdict.refusal}"))
    if verdict.nodes:
        count = f"{verdict.plugins} of {verdict.nodes} nystra nodes are plugins"
        rows.append(("plugins", f"{count}; {model.library_reason}"))
    rows.append(("checked", ", ".join(verdict.checked) or "nothing"))
    if verdict.shapes:
        sizes = ("x".join(str(n) for n in next(iter(c.inputs.values()))) for c in verdict.shapes)
        rows.append(("shapes", ", ".join(sizes)))
    rows += [("note", note) for note in verdict.notes]
    rows.append(("not shown", NOT_SHOWN))
    for name, text in rows:
        echo(f"{name:10}{text}")


def _finish(args: argparse.Namespace, model: EngineModel, built: BuiltEngine) -> None:
    from ...core.files.writing import make_folder
    from ...runtime.engines.build import engine_name, trtexec_line
    from ...runtime.engines.transfer import copy_engine

    record, place = built.record, built.path
    if args.output is not None:
        place = args.output
        if place.is_dir() or not place.suffix:
            make_folder(place)
            place = place / engine_name(model, record)
        record = copy_engine(built, place)
    line = None
    if record.backend == "tensorrt":
        line = trtexec_line(model, record.profile, record.version, place)
    _print_built(args, replace(built, record=record), place, model.library_reason, line)


def _print_built(
    args: argparse.Namespace, built: BuiltEngine, place: Path, reason: str, line: str | None = None
) -> None:
    record = built.record
    if args.json:
        document: dict[str, Any] = {"path": str(place), "fresh": built.fresh, "trtexec": line}
        print_json({**document, "library_reason": reason, **asdict(record)})
        return
    if args.quiet:
        return
    state = "built" if built.fresh else "was there"
    size = f"{place.stat().st_size / 2**20:.1f} MiB"
    echo(f"engine    {place} ({size}, {state})")
    echo(f"builder   {record.backend} {record.version}")
    echo(f"for       {', '.join(record.targets) or record.device.get('name', 'any GPU')}")
    echo(f"plugins   {len(record.plugins)}; {reason}")
    echo(f"sha256    {record.sha256}")
    if record.targets:
        echo("not run   an engine built ahead of time: no GPU has loaded it yet")
    if line is not None:
        echo(f"the same  {line}")
