"""``nystra build``: builds an engine of a model file, or checks whether one can be built."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import NystraError
from ...core.option import Options, option
from ...core.option_kinds import File, Switch, Text
from ...core.ports.image_sizes import ImageSizes
from ...core.ports.port import Size, join_sides
from ...runtime.session_spec import SessionSpec
from ..console import echo, print_json, steps
from ..flags.option_flags import add_options, add_output_arguments, option_values

if TYPE_CHECKING:
    from ...runtime.backends.base import Backend
    from ...runtime.checking.dry_run import DryRunReport
    from ...runtime.compiled.cache import Engine
    from ...runtime.compiled.model import EngineModel
    from ...runtime.engines.build import BuildOptions

SUMMARY = "Build a TensorRT engine of a model file, or compile it with OpenVINO."


@dataclass(frozen=True)
class EngineOptions(Options):
    """Where an engine is written, or read from."""

    output: Path | None = option(
        File(
            None,
            "copy the engine to this path; a name without a suffix is a folder",
            short="o",
            metavar="FILE|FOLDER",
        )
    )
    backend: str = option(
        Text(
            "tensorrt",
            "tensorrt; tensorrt-rtx, which builds without a GPU; or openvino, which compiles for "
            "one size and this CPU",
            metavar="BACKEND",
        )
    )
    dry_run: bool = option(
        Switch(
            "only check whether the builder accepts the file; needs the TensorRT package, but no "
            "GPU"
        )
    )
    sizes: tuple[Size, ...] | None = option(
        ImageSizes(None, "input sizes whose output shapes `dry_run` compares")
    )
    engine: Path | None = option(File(None, "use this engine, built elsewhere; needs `trust`"))
    trust: bool = option(Switch("trust the author of `engine`, which is native code"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from ...runtime.compiled.model import EngineShapes
    from ...runtime.engines.build import BuildOptions

    parser.add_argument("model", type=Path, help=".onnx file")
    add_options(parser, EngineOptions, ("output", "backend"))
    add_options(parser, BuildOptions, ("targets",))
    shapes = parser.add_argument_group("shapes (default: one tile)")
    add_options(shapes, BuildOptions, ("tile",))
    add_options(shapes, EngineShapes)
    add_options(
        parser,
        SessionSpec,
        ("library", "precision"),
        library="the plugin library; none compiles the standard-operator bodies",
        precision="with openvino: compute in bfloat16",
    )
    add_options(parser, EngineOptions, ("dry_run", "sizes"))
    add_options(parser, BuildOptions, ("rebuild", "level"))
    add_options(parser, EngineOptions, ("engine", "trust"))
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code: 1 when the builder refuses the model."""
    from ...runtime.backends import backend_names, find_backend

    kind = find_backend(args.backend)
    own = {name: _list_applicable(find_backend(name)) for name in backend_names()}
    if kind.build_options is None:
        takers = " or ".join(name for name, options in own.items() if options)
        raise NystraError(f"{args.backend} builds no engines: expected {takers}")
    for option_name in dict.fromkeys(name for options in own.values() for name in options):
        if getattr(args, option_name) and option_name not in _list_applicable(kind):
            takers = " or ".join(name for name, options in own.items() if option_name in options)
            raise NystraError(f"`{option_name}` does not apply to {args.backend}, only to {takers}")
    if args.sizes and not args.dry_run:
        raise NystraError("--sizes is for --dry-run; an engine's sizes are --tile or --optShapes")
    if args.trust and args.engine is None:
        raise NystraError("--trust is for --engine: engines built on this machine are trusted")
    return _compile(args) if kind.engine is None else _build(args)


def _build(args: argparse.Namespace) -> int:
    from ...core.files.writing import make_folder
    from ...runtime.compiled.model import EngineModel
    from ...runtime.engines.build import BuildOptions, build_engine, equal_commands, take_engine

    model = EngineModel.open(args.model, args.library)
    options = _options(args, BuildOptions)
    if args.dry_run:
        return _dry_run(args, model, options)
    if args.engine is not None:
        built = take_engine(model, args.engine, trust=args.trust)
    else:
        with steps(args) as step:
            built = build_engine(model, options, step)
    if args.output is not None:
        place = args.output
        if place.is_dir() or not place.suffix:
            make_folder(place)
            place = place / built.name
        built = built.copy_to(place)
    _print_built(args, built, model.library_reason, equal_commands(model, built))
    return 0


def _compile(args: argparse.Namespace) -> int:
    from ...runtime.backends.openvino.build import CompileOptions, compile_network

    with steps(args) as step:
        built, reason = compile_network(
            args.model, _options(args, CompileOptions), args.library, step
        )
    _print_built(args, built, reason, {})
    return 0


def _options(args: argparse.Namespace, kind: Any) -> Any:
    from ...runtime.compiled.model import EngineShapes

    shapes = EngineShapes(**option_values(args, EngineShapes))
    return kind(args.backend, shapes, **option_values(args, kind))


def _list_applicable(kind: type[Backend]) -> list[str]:
    if kind.build_options is None:
        return []
    more = EngineOptions.list_options() if kind.engine is not None else {}
    return [name for name in (*kind.build_options.list_options(), *more) if name != "backend"]


def _dry_run(args: argparse.Namespace, model: EngineModel, options: BuildOptions) -> int:
    from ...runtime.checking.dry_run import NOT_SHOWN, dry_run

    with steps(args) as step:
        step(f"ask {options.backend}")
        verdict = dry_run(model, options, sizes=args.sizes)
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
        count = f"{verdict.plugins}, for {verdict.nodes} nodes that have one"
        rows.append(("plugins", f"{count}; {model.library_reason}"))
    rows.append(("checked", ", ".join(verdict.checked) or "nothing"))
    if verdict.shapes:
        shapes = [next(iter(case.inputs.values())) for case in verdict.shapes]
        rows.append(("shapes", ", ".join(join_sides(shape) for shape in shapes)))
    rows += [("note", note) for note in verdict.notes]
    rows.append(("not shown", NOT_SHOWN))
    for name, text in rows:
        echo(f"{name:10}{text}")


def _print_built(
    args: argparse.Namespace, built: Engine, reason: str, commands: Mapping[str, str]
) -> None:
    record = built.record
    if args.json:
        document: dict[str, Any] = {"path": str(built.path), "fresh": built.fresh}
        lines = {name: commands.get(name) for name in ("trtexec", "polygraphy")}
        print_json({**document, **lines, "library_reason": reason, **asdict(record)})
        return
    if args.quiet:
        return
    state = "built" if built.fresh else "from the cache"
    size = f"{built.path.stat().st_size / 2**20:.1f} MiB"
    echo(f"engine    {built.path} ({size}, {state})")
    echo(f"builder   {record.backend} {record.version}")
    echo(f"for       {', '.join(record.targets) or record.device.get('name', 'any GPU')}")
    echo(f"plugins   {len(record.plugins)}; {reason}")
    if record.targets:
        echo("not run: the engine was built ahead of time, and no GPU has loaded it yet")
    for line in commands.values():
        echo(f"equal to  {line}")
