"""Print how long an operator takes in bfloat16 with each instruction set, on one core.

With the library built::

    python -m studies.performance.isas nystrom-32 --isas avx512 avx512_bf16 amx

A process for each, all on the same core, take turns; processor time counts, so that a busy machine
will do. Names of configurations are those of ``operators``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection

import numpy as np

from nystra.plugins import native
from studies.performance.operators import HEAD_DIM, HEADS, SIDE, node


def serve(name: str, requests: Connection) -> None:
    """Run the operator once for each request; answer with the milliseconds."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    operator, attributes = node(name)
    rng = np.random.default_rng(0)
    shapes = [(1, SIDE, SIDE, 3 * HEADS * HEAD_DIM)]
    if "bias" in attributes:
        shapes.append(
            ((2 * attributes["window_h"] - 1) ** 2, HEADS) if attributes["bias"] else (1,)
        )
    floats = [rng.standard_normal(shape, np.float32) for shape in shapes]
    inputs = [(array.view(np.uint32) >> 16).astype(np.uint16) for array in floats]
    while requests.recv():
        start = time.process_time()
        native.run(
            operator,
            inputs,
            attributes,
            1,
            lambda shape, _: np.empty(shape, np.uint16),
            ["bfloat16"] * len(inputs),
        )
        requests.send(1e3 * (time.process_time() - start))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="such as nystrom-32 or softmax-8-bias-mask")
    parser.add_argument("--isas", nargs="+", default=["avx512", "avx512_bf16"])
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    ends = {}
    for isa in options.isas:
        os.environ["NYSTRA_CPU_ISA"] = isa
        ends[isa], child_end = spawn.Pipe()
        spawn.Process(target=serve, args=(options.name, child_end), daemon=True).start()
    times: dict[str, list[float]] = {isa: [] for isa in ends}
    for _ in range(options.rounds + 1):
        for isa, end in ends.items():
            end.send(True)
            times[isa].append(end.recv())
    for end in ends.values():
        end.send(False)
    first = times[options.isas[0]][1:]
    for isa, (_, *own) in times.items():
        ratio = statistics.median(a / b for a, b in zip(own, first, strict=True))
        print(f"{isa:11} {min(own):7.2f} ms at least, median {statistics.median(own):7.2f}", end="")
        print(f", {ratio:.3f} of {options.isas[0]}")


if __name__ == "__main__":
    main()
