"""Print the speed table of studies/measurements/performance.md, all of it from one interleaved run.

On a quiet machine, with the library built::

    python -m studies.performance.bars --rounds 5

All configurations run in turn within each round, since the speed of machines drifts; the result is
the median over the rounds of a round's ratio. The first run makes the model files, which takes
minutes, and keeps them in ``--models``. ``--only w32-`` times the rows that have a configuration of
that name in them; ``--cpu-time`` measures the time of one thread instead, for a busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch

from nystra.plugins.library import isa
from studies.performance import networks, operators, table
from studies.performance.table import Bar

BARS = [
    Bar("`NystraWindowNystrom` w 32 vs its ONNX body", "nystrom-32-body", "nystrom-32", 8),
    Bar("w 32 vs exact `NystraWindowSoftmax`", "softmax-32", "nystrom-32", 10),
    Bar("w 64 vs exact `NystraWindowSoftmax`", "softmax-64", "nystrom-64", 35),
    Bar("mask 1: w 32 vs its ONNX body", "nystrom-32-mask-body", "nystrom-32-mask", 8),
    Bar("mask 1: w 32 vs exact", "softmax-32-mask", "nystrom-32-mask", 10),
    Bar("mask 1: w 64 vs exact", "softmax-64-mask", "nystrom-64-mask", 35),
    Bar(
        "`NystraWindowSoftmax` w 8, bias and mask, vs plain export of the region",
        "region-8-plain",
        "softmax-8-bias-mask",
        2,
    ),
    Bar("time per token, `NystraWindowNystrom` w 64 / w 16", "nystrom-64", "nystrom-16", 1.6, True),
    *(
        Bar(
            f"bias and mask: `NystraWindowCluster` w {side} vs exact",
            f"softmax-{side}-bias-mask",
            f"cluster-{side}-bias-mask",
            limit,
        )
        for side, limit in ((16, 2), (32, 6), (64, 12))
    ),
    Bar("time of `NystraWindowCluster` / Nystrom, w 32", "cluster-32", "nystrom-32", 1.7, True),
    Bar("SwinIR-M w 32 vs full attention, plain export", "w32-plain", "w32-nystra", 2.2),
    Bar("SwinIR-M w 32 vs full attention, torch eager", "w32-torch", "w32-nystra", 6),
    Bar("SwinIR-M w 32 vs full attention, torch SDPA", "w32-sdpa", "w32-nystra", 1),
    Bar("SwinIR-M w 32 vs nystra as plain ONNX", "w32-nystra-inline", "w32-nystra", 1.25),
    Bar("with bias and mask: vs full attention, plain export", "w32b-plain", "w32b-nystra", 2.2),
    Bar("with bias and mask: vs full attention, torch eager", "w32b-torch", "w32b-nystra", 6),
    Bar("official SwinIR-M w 8 vs plain export", "w8-plain", "w8-full", 1.15),
    Bar("`swinir_x2_w16` vs plain export", "w16-plain", "w16-full", 2),
    Bar("`swinir_x2_w16`, `cluster` vs exact", "w16-full", "w16-cluster", 1.2),
    Bar("`swinir_x2_w32_nobias` vs plain export", "nobias-plain", "nobias-full", 2),
    Bar("`swinir_x2_w32_nobias`, `cluster` vs exact", "nobias-full", "nobias-cluster", 2),
    Bar("`sst_x2_w64` vs plain export", "sst-plain", "sst-full", 1.2),
    Bar("`sst_x2_w64`, `cluster` vs exact", "sst-full", "sst-cluster", 3),
    Bar("official HAT x4 vs plain export", "hat-plain", "hat-full", 1.5),
    Bar("official HAT x4, `cluster`, vs plain export", "hat-plain", "hat-cluster", 2.2),
    Bar("one group of HAT x4 vs plain export", "hat-group-plain", "hat-group-full", 1.5),
    Bar("one group of HAT x4, `cluster`", "hat-group-plain", "hat-group-cluster", 2.2),
    Bar("`NystraWindowNystrom` w 32, 1 thread over 2", "nystrom-32:1", "nystrom-32", 1.8),
]  # fmt: skip


def runner(name: str, folder: Path, threads: int) -> Callable[[], object]:
    """Return a function that runs a configuration once."""
    name, _, own = name.partition(":")
    threads = int(own or threads)
    if name.partition("-")[0] in operators.KINDS:
        return operators.runner(name, threads)
    return networks.runner(name, folder, threads)


def measure(
    runs: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Return the milliseconds of each configuration in each round.

    A pause lets the threads of the configuration before stop spinning; a run before the timed one
    wakes those of this one, where that is less than half a second.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for turn in range(rounds):
        print(f"round {turn + 1} of {rounds}", flush=True)
        for name, run in runs.items():
            time.sleep(0.1)
            if not times[name] or times[name][-1] < 500:
                run()
            start = clock()
            run()
            times[name].append(1e3 * (clock() - start))
    return times


def w8_error(runs: dict[str, Callable[[], object]]) -> str:
    """Return the difference of our export of the official network from the plain one."""
    ours, plain = (np.asarray(runs[name]()) for name in ("w8-full", "w8-plain"))
    error = np.abs(ours - plain).max() / np.abs(plain).max()
    return f"official SwinIR-M, our export against the plain one: {error:.1e} of the largest value"


def main() -> None:
    """Measure and print."""
    parser = table.parser(__doc__)
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of one thread")
    options = parser.parse_args()
    threads = 1 if options.cpu_time else options.threads
    clock = time.thread_time if options.cpu_time else time.perf_counter
    bars = table.chosen(BARS, options.only)
    runs = {name: runner(name, options.models, threads) for name in table.names(bars)}
    times = measure(runs, options.rounds, clock)
    table.print_table(
        f"onnxruntime {ort.__version__}, torch {torch.__version__}, kernels {isa()}, "
        f"{threads} threads, {options.rounds} rounds",
        bars,
        times,
    )
    if {"w8-full", "w8-plain"} <= set(runs):
        print(w8_error(runs))


if __name__ == "__main__":
    main()
