"""Print the figures of OpenVINO: speed, peak memory and the error of bfloat16.

On a quiet machine with bfloat16, with the library built::

    python -m studies.performance.openvino_bars --rounds 5

The networks are those of ``bars``, which keeps the files too; ``plain`` is full attention exported
by ``torch.onnx.export``, ``alone`` is OpenVINO in bf16 without our backend. Each configuration is a
process, and all run in turn within a round. A second table has int8, a third float32 without AMX,
which is disabled in oneDNN and our kernels. ``--profile w8-full@bf16`` prints the time of one by
operator instead, ``--opening w8-full@bf16`` the processor time until it is ready, with and without
`nystra build`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import openvino

from nystra.core.errors import NystraError
from nystra.core.ports.port import image_size
from nystra.plugins.library import isa
from nystra.runtime import Session
from nystra.runtime.backends.openvino.build import CompileOptions, compile_network
from nystra.runtime.timing.bench import Configuration, bench, session_configuration
from nystra.runtime.timing.rows import Row
from studies.performance import networks, openvino_alone, table
from studies.performance.table import Bar

WAYS = {"ort": "ort-cpu", "f32": "openvino", "bf16": "openvino-bf16"}

ALONE = "alone"

BARS = [
    Bar("official w 8: OpenVINO bf16, plain export", "w8-plain@alone", "w8-full@bf16", 1.3),
    Bar("w 32: OpenVINO bf16, plain export", "w32-plain@alone", "w32-nystra@bf16", 3.3),
    Bar("official w 8: the same in our backend", "w8-plain@bf16", "w8-full@bf16", 1),
    Bar("w 32: the same in our backend", "w32-plain@bf16", "w32-nystra@bf16", 1),
    Bar("official w 8: onnxruntime fp32, plain export", "w8-plain@ort", "w8-full@bf16", 3.5),
    Bar("w 32: onnxruntime fp32, plain export", "w32-plain@ort", "w32-nystra@bf16", 6.5),
    Bar("official w 8: ours in float32", "w8-full@f32", "w8-full@bf16", 1),
    Bar("w 32: ours in float32", "w32-nystra@f32", "w32-nystra@bf16", 1),
]

INT8 = [
    Bar("official w 8: OpenVINO, float32 over int8", "w8-full@f32", "w8-int8@f32", 1.5),
    Bar("official w 8: onnxruntime, float32 over int8", "w8-full@ort", "w8-int8@ort", 1.5),
    Bar("official w 8: OpenVINO, bf16 over int8", "w8-full@bf16", "w8-int8@f32", 1),
    Bar("official w 8: OpenVINO, bf16 over int8 with bf16", "w8-full@bf16", "w8-int8@bf16", 1),
    Bar("w 32: OpenVINO, float32 over int8", "w32-nystra@f32", "w32-int8@f32", 1.5),
    Bar("w 32: onnxruntime, float32 over int8", "w32-nystra@ort", "w32-int8@ort", 1.5),
    Bar("w 32: OpenVINO, bf16 over int8", "w32-nystra@bf16", "w32-int8@f32", 1),
    Bar("w 32: OpenVINO, bf16 over int8 with bf16", "w32-nystra@bf16", "w32-int8@bf16", 1),
    Bar("official w 8: OpenVINO bf16, plain export", "w8-plain@alone", "w8-int8@bf16", 1.3),
    Bar("w 32: OpenVINO bf16, plain export", "w32-plain@alone", "w32-int8@bf16", 3.3),
    Bar("official w 8: onnxruntime fp32, plain export", "w8-plain@ort", "w8-int8@bf16", 3.5),
    Bar("w 32: onnxruntime fp32, plain export", "w32-plain@ort", "w32-int8@bf16", 6.5),
]

WITHOUT_AMX = [
    Bar("official w 8, float32: onnxruntime over OpenVINO", "w8-full@ort", "w8-full@f32", 0.9),
    Bar("w 32, float32: onnxruntime over OpenVINO", "w32-nystra@ort", "w32-nystra@f32", 0.9),
]

NO_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "NYSTRA_CPU_ISA": "avx512"}

DECIBELS = [
    ("w8-full@bf16", "w8-full@f32", 50),
    ("w32-nystra@bf16", "w32-nystra@f32", 50),
    ("w8-int8@f32", "w8-full@f32", 45),
    ("w32-int8@f32", "w32-nystra@f32", 45),
    ("w8-int8@bf16", "w8-full@f32", 45),
    ("w32-int8@bf16", "w32-nystra@f32", 45),
]
"""Configurations in low precision, the same in float32, and what they are to keep."""


def file(name: str, folder: Path) -> tuple[Path, str]:
    """Return the file, which is created if missing, and the variant of ``<file>@<variant>``."""
    stem, _, way = name.partition("@")
    return networks.file(stem, folder), WAYS.get(way, way)


def alone_worker() -> str:
    """Return the name by which a worker finds ``openvino_alone``.

    Workers do not look into the folder that they are started from, which may be anybody's: they get
    this one.
    """
    path = Path(openvino_alone.__file__)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    return path.stem


def configuration(name: str, folder: Path, threads: int) -> Configuration:
    """Return the configuration of ``<file>@<way>``."""
    path, way = file(name, folder)
    if way == ALONE:
        request = {"model": str(path.absolute()), "precision": "bf16", "threads": threads}
        return Configuration(str(path), name, alone_worker(), request)
    return replace(session_configuration(path, way, threads), backend=name)


def measure(names: list[str], folder: Path, threads: int, rounds: int) -> dict[str, Row]:
    """Time configurations in turns.

    Raises:
        NystraError: One did not run.
    """
    configurations = [configuration(name, folder, threads) for name in names]
    size = image_size(networks.SIDE, networks.SIDE)
    rows = bench(
        configurations,
        [size],
        seconds=1e9,
        runs=rounds,
        progress=lambda what: print(what, flush=True),
    )
    failed = [f"{row.backend} {row.reason}" for row in rows if row.reason is not None]
    if failed:
        raise NystraError("; ".join(failed))
    return {row.backend: row for row in rows}


def milliseconds(rows: dict[str, Row]) -> dict[str, list[float]]:
    """Return the times in the form of the table."""
    return {name: [1e3 * seconds for seconds in row.times] for name, row in rows.items()}


def print_bars(title: str, bars: list[Bar], options: Namespace) -> None:
    """Measure one network after the other, since all together may need more than 24 GB; print."""
    rows: dict[str, Row] = {}
    for network in ("w8-", "w32-"):
        names = [name for name in table.names(bars) if name.startswith(network)]
        rows |= measure(names, options.models, options.threads, options.rounds) if names else {}
    table.print_table(title, bars, milliseconds(rows))
    print_memory(rows)


def print_memory(rows: dict[str, Row]) -> None:
    """Print the peak of each process."""
    print("| configuration | peak memory of the process, MB |\n| --- | --- |")
    for name, row in rows.items():
        print(f"| {name} | {row.memory['peak'] / 1e6:.0f} |")
    print()


def session(name: str, folder: Path, threads: int) -> Session:
    """Open a configuration of OpenVINO in this process."""
    path, way = file(name, folder)
    return Session(path, "openvino", threads, precision="bf16" if way != "openvino" else None)


def run(opened: Session) -> np.ndarray:
    """Return the output of a session for the image."""
    return opened.run({opened.inputs[0].name: networks.make_image().numpy()})[
        opened.outputs[0].name
    ]


def print_decibels(low: str, high: str, least: float, folder: Path, threads: int) -> None:
    """Print the difference of low precision from float32, both by nystra."""
    got = run(session(low, folder, threads))
    exact = run(session(high, folder, threads))
    error = float(np.mean((got - exact).astype(np.float64) ** 2))
    decibels = 10 * np.log10(np.ptp(exact) ** 2 / error)
    print(f"{low} against float32: {decibels:.1f} dB, target {least} dB", flush=True)


def profile(opened: Session) -> None:
    """Print the milliseconds of each kind of node, by OpenVINO's names."""
    backend = opened._backend
    backend.settings |= {"PERF_COUNT": True}  # type: ignore[attr-defined]
    run(opened)
    (network,) = backend._compiled.values()  # type: ignore[attr-defined]
    request = network.compiled.create_infer_request()
    request.infer({opened.inputs[0].name: networks.make_image().numpy()})
    totals: Counter[str] = Counter()
    for node in request.get_profiling_info():
        totals[f"{node.node_type} {node.exec_type}"] += node.real_time.total_seconds() * 1e3
    for kind, milliseconds in totals.most_common(16):
        print(f"{milliseconds:9.1f} ms  {kind}")


def opening(name: str, folder: Path, threads: int) -> None:
    """Print the processor seconds until a session is ready."""
    path, way = file(name, folder)
    shapes = {"input": (1, 3, networks.SIDE, networks.SIDE)}

    def seconds() -> float:
        start = time.process_time()
        session(name, folder, threads)._backend._network(tuple(shapes.items()))  # type: ignore[attr-defined]
        return time.process_time() - start

    with tempfile.TemporaryDirectory() as cache:
        os.environ["NYSTRA_CACHE_DIR"] = cache
        seconds()  # what is imported and loaded once
        compiled = seconds()
        options = CompileOptions(
            "openvino", tile=networks.SIDE, precision="bf16" if way == "openvino-bf16" else None
        )
        built, _ = compile_network(path, options)
        size = built.path.stat().st_size / 1e6
        print(f"{name}: {compiled:.2f} s compiled, {seconds():.2f} s stored ({size:.0f} MB)")


def main() -> None:
    """Measure and print."""
    parser = table.parser(__doc__)
    parser.add_argument("--profile", metavar="NAME", help="such as w8-full@bf16")
    parser.add_argument("--opening", metavar="NAME", help="such as w8-full@bf16")
    options = parser.parse_args()
    folder, threads = options.models, options.threads
    if options.profile is not None:
        profile(session(options.profile, folder, threads))
        return
    if options.opening is not None:
        opening(options.opening, folder, threads)
        return
    where = f"OpenVINO {openvino.__version__}, {threads} threads, {options.rounds} rounds"
    bars = table.chosen(BARS, options.only)
    print_bars(f"{where}, kernels {isa()}", bars, options)
    for low, high, least in DECIBELS:
        if any(name in low for name in options.only):
            print_decibels(low, high, least, folder, threads)
    print_bars(f"{where}, int8", table.chosen(INT8, options.only), options)
    os.environ.update(NO_AMX)
    print_bars(f"{where}, without AMX", table.chosen(WITHOUT_AMX, options.only), options)


if __name__ == "__main__":
    main()
