# ruff: noqa: T201
"""Print the speed table of docs/openvino.md, all of it from one interleaved run.

Not a test: run it by hand, on a quiet machine with bfloat16, with the library built::

    python tests/benchmarks/openvino_bars.py --rounds 5

Networks and method are those of ``bars.py``, which also keeps the files; ``plain`` is what
``torch.onnx.export`` makes of full attention. With ``--cpu-time`` each runs on one thread and the
processor time counts, for a busy machine. ``--profile NAME`` prints where the time of one goes.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import bars
import networks
import numpy as np
import openvino

from nystra.plugins.library import isa
from nystra.runtime import Session

WAYS = {"ort": ("ort-cpu", None), "f32": ("openvino", None), "bf16": ("openvino", "bf16")}

BARS = [
    bars.Bar("official w 8: OpenVINO bf16, plain export", "w8-plain@bf16", "w8-full@bf16", 1.3),
    bars.Bar("official w 8: onnxruntime fp32, plain export", "w8-plain@ort", "w8-full@bf16", 3.5),
    bars.Bar("w 32: OpenVINO bf16, plain export", "w32-plain@bf16", "w32-nystra@bf16", 3.3),
    bars.Bar("w 32: onnxruntime fp32, plain export", "w32-plain@ort", "w32-nystra@bf16", 6.5),
    bars.Bar("official w 8: ours in float32", "w8-full@f32", "w8-full@bf16", 1),
    bars.Bar("w 32: ours in float32", "w32-nystra@f32", "w32-nystra@bf16", 1),
    bars.Bar("official w 8 in float32: ours in onnxruntime", "w8-full@ort", "w8-full@f32", 1),
    bars.Bar("w 32 in float32: ours in onnxruntime", "w32-nystra@ort", "w32-nystra@f32", 1),
]


def session(name: str, folder: Path, threads: int) -> Session:
    """Open a configuration, ``<file>@<way>``; the file is made where it is missing."""
    file, _, way = name.partition("@")
    path = folder / f"{file}.onnx"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        networks.FILES[file](path)
    backend, precision = WAYS[way]
    return Session(path, backend, threads, precision=precision)


def runner(opened: Session) -> Callable[[], object]:
    """Return a function that runs a session once."""
    feeds = {opened.inputs[0].name: networks.picture().numpy()}
    return lambda: next(iter(opened.run(feeds).values()))


def decibels(runs: dict[str, Callable[[], object]], low: str, exact: str) -> str:
    """Return how far a configuration is from another."""
    got, expected = (np.asarray(runs[name]()) for name in (low, exact))
    error = float(np.mean((got - expected).astype(np.float64) ** 2))
    return f"{low} against {exact}: {10 * np.log10(np.ptp(expected) ** 2 / error):.1f} dB"


def profile(opened: Session) -> None:
    """Print the milliseconds of each kind of node, in OpenVINO's own words."""
    run = runner(opened)
    opened._backend.settings |= {"PERF_COUNT": True}  # type: ignore[attr-defined]
    run()
    (network,) = opened._backend._compiled.values()  # type: ignore[attr-defined]
    request = network.create_infer_request()
    request.infer({opened.inputs[0].name: networks.picture().numpy()})
    totals: Counter[str] = Counter()
    for one in request.get_profiling_info():
        totals[f"{one.node_type} {one.exec_type}"] += one.real_time.total_seconds() * 1e3
    for kind, milliseconds in totals.most_common(16):
        print(f"{milliseconds:9.1f} ms  {kind}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=Path, default=Path("build/bars"), metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=[""], metavar="NAME")
    parser.add_argument("--cpu-time", action="store_true", help="processor time of one thread")
    parser.add_argument("--profile", metavar="NAME", help="such as w8-full@bf16")
    given = parser.parse_args()
    threads = 1 if given.cpu_time else given.threads
    if given.profile is not None:
        profile(session(given.profile, given.models, threads))
        return
    chosen = [b for b in BARS if any(n in b.slow or n in b.fast for n in given.only)]
    names = dict.fromkeys(name for bar in chosen for name in (bar.fast, bar.slow))
    runs = {name: runner(session(name, given.models, threads)) for name in names}
    clock = time.process_time if given.cpu_time else time.perf_counter
    times = bars.measure(runs, given.rounds, clock)
    print(f"\nOpenVINO {openvino.__version__}, kernels {isa()}, {threads} threads\n")
    print("| against | bar | median ratio (least to most) | ms, slow / fast | met |")
    print("| --- | --- | --- | --- | --- |")
    for bar in chosen:
        print(bars.line(bar, times))
    print()
    for low in names:
        exact = low.replace("@bf16", "@f32")
        if exact != low and exact in runs:
            print(decibels(runs, low, exact))


if __name__ == "__main__":
    main()
