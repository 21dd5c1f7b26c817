"""Print the time of an operator with each instruction set and each library, on one core.

With the library built::

    python -m studies.performance.isas nystrom-32 --isas avx512 avx512_bf16 amx
    python -m studies.performance.isas nystrom-32 --isas avx2 --kind float32 --libraries DIR OTHER

There is a process for each, all on the same core, in turn; processor time is measured, so that the
machine may be busy. Names of configurations are those of ``operators``.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection

import numpy as np

from nystra.plugins import native
from nystra.plugins.library import LIBRARY_DIR_VARIABLE
from studies.performance.operators import HEAD_DIM, HEADS, SIDE, node


def serve(name: str, kind: str, requests: Connection) -> None:
    """Run the operator once for each request; answer with the milliseconds."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    operator, attributes = node(name)
    rng = np.random.default_rng(0)
    shapes = [(1, SIDE, SIDE, 3 * HEADS * HEAD_DIM)]
    if "bias" in attributes:
        shapes.append(
            ((2 * attributes["window_h"] - 1) ** 2, HEADS) if attributes["bias"] else (1,)
        )
    inputs = [rng.standard_normal(shape, np.float32) for shape in shapes]
    if kind == "bfloat16":
        inputs = [(array.view(np.uint32) >> 16).astype(np.uint16) for array in inputs]
    kept = inputs[0].dtype
    while requests.recv():
        start = time.process_time()
        native.run(
            operator,
            inputs,
            attributes,
            1,
            lambda shape, _: np.empty(shape, kept),
            [kind] * len(inputs),
        )
        requests.send(1e3 * (time.process_time() - start))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="such as nystrom-32 or softmax-8-bias-mask")
    parser.add_argument("--isas", nargs="+", default=["avx512", "avx512_bf16"])
    parser.add_argument("--libraries", nargs="+", default=[""], help="folders; else nystra's own")
    parser.add_argument("--kind", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    ends = {}
    for folder, isa in itertools.product(options.libraries, options.isas):
        os.environ |= {"NYSTRA_CPU_ISA": isa, LIBRARY_DIR_VARIABLE: folder}
        row = f"{folder} {isa}".strip()
        ends[row], child_end = spawn.Pipe()
        spawn.Process(
            target=serve, args=(options.name, options.kind, child_end), daemon=True
        ).start()
    times: dict[str, list[float]] = {row: [] for row in ends}
    for _ in range(options.rounds + 1):
        for row, end in ends.items():
            end.send(True)
            times[row].append(end.recv())
    for end in ends.values():
        end.send(False)
    name_of_first, (_, *first) = next(iter(times.items()))
    for row, (_, *own) in times.items():
        ratio = statistics.median(a / b for a, b in zip(own, first, strict=True))
        print(f"{row:11} {min(own):7.2f} ms at least, median {statistics.median(own):7.2f}", end="")
        print(f", {ratio:.3f} of {name_of_first}")


if __name__ == "__main__":
    main()
