"""``nystra bench``: models and backends side by side, timed in interleaved runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.reading import regular_file
from ...core.installation import not_installed
from ...core.option import Options, option
from ...core.option_kinds import File, Number, Words
from ...core.ports.image_sizes import ImageSizes
from ...core.ports.port import SIDES, Size, image_size, size_text
from ...runtime.backends import backend_names
from ...runtime.session_spec import SessionSpec
from ..console import echo, print_json, print_table, steps
from ..flags.checkpoint_flags import add_checkpoint_arguments, hyper_from
from ..flags.option_flags import CHECKPOINT, add_options, add_output_arguments

if TYPE_CHECKING:
    from ...runtime.timing.bench import Configuration
    from ...runtime.timing.rows import Row

SUMMARY = "Time model files and backends against each other, in interleaved runs."

TORCH_WORKER = "nystra.export.pytorch.benchmark_worker"


@dataclass(frozen=True)
class BenchOptions(Options):
    """What is timed, and for how long."""

    backends: tuple[str, ...] | None = option(
        Words(
            None,
            f"{', '.join(backend_names())} (ort:NAME, an execution provider of onnxruntime), "
            "each also with -bodies (without the operator library: ort-cpu-bodies) or a precision "
            "that it can choose (openvino-bf16), and with `checkpoint` torch-cpu, torch-cuda, "
            "torch-cuda-fp16 and torch-cuda-compile (float16 by torch.compile)",
            default_text="ort-cpu-bodies, ort-cpu, and torch-cpu with `checkpoint`",
            flag="--backend",
            alias="--backends",
        )
    )
    checkpoint: Path | None = option(
        CHECKPOINT, doc="checkpoint that PyTorch runs, with the plan of the file", default_text=""
    )
    sizes: tuple[Size, ...] | None = option(
        ImageSizes(
            None,
            "input sizes, height x width in pixels",
            default_text="the model's size if fixed, else 128x128",
        )
    )
    seconds: float = option(
        Number(3.0, "seconds of timing per configuration", 0, above=True, metavar="SECONDS")
    )
    runs: int = option(
        Number(
            100,
            "maximum number of timed runs per configuration",
            1,
            hard_maximum=1_000_000,
            metavar="RUNS",
        )
    )
    plot: Path | None = option(
        File(
            None,
            "plot the times: bars, or lines for several sizes (needs matplotlib)",
            metavar="OUT.png",
        )
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help=".onnx files")
    add_options(parser, BenchOptions, ("backends", "checkpoint", "sizes", "seconds", "runs"))
    add_options(parser, SessionSpec, ("threads", "ep_library"))
    add_options(parser, BenchOptions, ("plot",))
    add_checkpoint_arguments(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code: 0 when at least one configuration ran."""
    from ...runtime.timing.bench import bench
    from ...runtime.timing.rows import UNAVAILABLE, compare_models, describe_machine

    sizes = _sizes(args)
    configurations = _configurations(args)
    if args.plot is not None:
        _check_plot(args.plot)
    with steps(args) as progress:
        rows = bench(configurations, sizes, seconds=args.seconds, runs=args.runs, progress=progress)
    measured = [row for row in rows if row.reason is None]
    if args.plot is not None and measured:
        from ...runtime.timing.plot import plot_rows

        plot_rows(rows, args.plot)
    machine = describe_machine(args.threads)
    if args.json:
        document: dict[str, Any] = {
            "schema_version": 1,
            "machine": machine,
            "method": {
                "interleaved": True,
                "process": "one for each row",
                "least_seconds": args.seconds,
                "or_runs": args.runs,
                "spinning": "onnxruntime's threads stop after each run",
                "memory": "peak resident memory minus that before the first run, in bytes",
                "device_memory": "growth of the used GPU memory from before loading to after the "
                "first runs, in bytes",
                "device_p50": "without copies to and from the GPU: events around the engine or the "
                "network; with onnxruntime, a synchronized run on tensors in GPU memory",
                "megapixels": "of the input",
            },
            "rows": [row.as_dict() for row in rows],
            "models": [comparison.as_dict() for comparison in compare_models(rows)],
        }
        print_json(document)
    elif not args.quiet:
        _print(rows, machine, args.verbose)
    if measured:
        return 0
    return 2 if any(row.exit_code == 2 for row in rows) else UNAVAILABLE


def _sizes(args: argparse.Namespace) -> Sequence[Size]:
    from ...runtime.backends import artifact_of
    from ...runtime.model.onnx_graph import read_facts

    files = [model for model in args.models if artifact_of(model) == "onnx"]
    facts = {model: read_facts(model) for model in files}
    if args.sizes is not None:
        for model, stated in facts.items():
            if not any(set(SIDES) <= set(port.axes) for port in stated.inputs):
                axes = ", ".join(f"{port.name} ({', '.join(port.axes)})" for port in stated.inputs)
                raise NystraError(
                    f"--sizes does not apply to {model}, whose inputs have no height and width: "
                    f"{axes}. Omit --sizes"
                )
        requested: Sequence[Size] = args.sizes
        return requested
    own = [stated.sides for stated in facts.values() if stated.sides is not None]
    different = [sides for place, sides in enumerate(own) if sides not in own[:place]]
    return different or [image_size(128, 128)]


def _configurations(args: argparse.Namespace) -> list[Configuration]:
    from ...export.pytorch.backend import TORCH_BACKENDS, register_torch
    from ...models.pretrained import checkpoint_path
    from ...runtime.timing.bench import BODIES_BACKEND, session_configuration

    if args.backends is not None:
        backends = list(dict.fromkeys(args.backends))
    else:
        backends = [BODIES_BACKEND, "ort-cpu", *(["torch-cpu"] if args.checkpoint else [])]
    checkpoint = None
    if args.checkpoint is not None:
        checkpoint = regular_file(checkpoint_path(args.checkpoint), "the checkpoint")
    hyper = hyper_from(args)
    register_torch(checkpoint, hyper)
    torch = {"checkpoint": None if checkpoint is None else str(checkpoint), "hyper": hyper}
    configurations = []
    for model in args.models:
        for backend in backends:
            configuration = session_configuration(
                model, backend, args.threads, ep_library=args.ep_library
            )
            if backend in TORCH_BACKENDS:
                request = {**configuration.request, **torch}
                configuration = replace(configuration, worker=TORCH_WORKER, request=request)
            configurations.append(configuration)
    return configurations


def _check_plot(path: Path) -> None:
    from importlib import import_module

    from ...core.files.writing import check_can_make

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise NystraError(f"--plot {path} is not a .png, .svg or .pdf file")
    try:
        import_module("matplotlib.figure")
    except ModuleNotFoundError:
        raise BackendUnavailableError(
            not_installed("matplotlib, which --plot needs,", "report")
        ) from None
    check_can_make(path.parent)


def _print(rows: list[Row], machine: dict[str, Any], verbose: bool) -> None:
    places, times = ("model", "backend", "operators", "size"), ("p50", "p90", "p99")
    device = any(row.device_memory is not None for row in rows)
    timed = any(row.device_times for row in rows)
    gpu = (*["GPU p50"] * timed, *["GPU memory"] * device)
    figures = ("images/s", "MP/s", "memory", *gpu, "speed")
    table: list[tuple[str, ...]] = [(*places, *times, *figures)]
    for row in rows:
        where = (row.model, row.backend, row.operators or "-", size_text(row.size))
        if row.reason is not None:
            table.append((*where, *["-"] * (7 + len(gpu))))
            continue
        table.append(
            (
                *where,
                *(_milliseconds(row.percentile(share)) for share in (50, 90, 99)),
                f"{row.images_per_second:.2f}",
                f"{row.megapixels_per_second:.3f}",
                _mebibytes(row.memory.get("above")),
                *[_milliseconds(row.device_seconds)] * timed,
                *[_mebibytes(row.device_memory)] * device,
                ratio_text(row),
            )
        )
    print_table(table)
    for reason in dict.fromkeys(f"{row.name}: {row.reason}" for row in rows if row.reason):
        echo(reason)
    noted = [row for row in rows if _fell_back(row) or row.assignment is not None]
    for note in dict.fromkeys(f"{row.name}: {row.note}" for row in noted):
        echo(note)
    if verbose:
        for row in rows:
            if row.reason is None:
                echo(f"{row.label}: {len(row.times)} runs, {row.note}")
    threads = machine["threads"] or "all"
    echo(
        f"{machine['cpu']}, {machine['usable_cores']} of {machine['cores']} cores, "
        f"{threads} threads, onnxruntime {machine['onnxruntime']}"
        + (f", {machine['gpu']}" if machine["gpu"] else "")
    )
    for first in dict.fromkeys(row.ratio_to for row in rows if row.ratio_to):
        echo(f"faster, slower: relative to {first}, median of interleaved runs")
    _print_models(rows)


def _print_models(rows: list[Row]) -> None:
    from ...runtime.timing.rows import compare_models

    for comparison in compare_models(rows):
        change = speed_text(comparison.ratio)
        if change != "1x":
            change += " than"
        echo(
            f"{comparison.model}: {change} {comparison.first} in {comparison.backend}, "
            f"{size_text(comparison.size)}"
        )


def _fell_back(row: Row) -> bool:
    from ...runtime.timing.bench import BODIES_BACKEND

    return row.operators == "bodies" and row.backend != BODIES_BACKEND


def ratio_text(row: Row) -> str:
    """Return how much faster a row is than the first that ran at its size."""
    if row.ratio is None:
        return "-"
    return "1x" if row.name == row.ratio_to else speed_text(row.ratio)


def speed_text(ratio: float) -> str:
    """Return a time divided by another as ``1.25x faster``, or ``1x`` where they are equal."""
    if abs(ratio - 1) < 0.005:
        return "1x"
    return f"{1 / ratio:.2f}x faster" if ratio < 1 else f"{ratio:.2f}x slower"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _mebibytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f} MiB"
