"""The time of plain onnxruntime to open a file, with one option of a session changed at a time.

    python -m studies.performance.opening MODEL.onnx [--seconds 120]

Each runs in a process of its own that is ended after a limit of processor time. Bodies are
inlined while a file is opened: a file of a hundred attentions becomes tens of thousands of nodes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

OPTIONS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "enable_mem_reuse False": {"enable_mem_reuse": False},
    "no graph optimization": {"graph_optimization_level": 0},
    "basic graph optimization": {"graph_optimization_level": 1},
    "basic, enable_mem_reuse False": {"graph_optimization_level": 1, "enable_mem_reuse": False},
    "enable_mem_pattern False": {"enable_mem_pattern": False},
}
"""What is said of a row -> options of a session; levels as onnxruntime counts them."""


def opened(path: Path, changed: dict[str, Any], seconds: int, answer: Any) -> None:
    """Open a file and send processor seconds and the peak memory in MiB."""
    import onnxruntime

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for name, value in changed.items():
        if name == "graph_optimization_level":
            value = onnxruntime.GraphOptimizationLevel(value)
        setattr(options, name, value)
    begun = time.process_time()
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    answer.send((time.process_time() - begun, peak))


def main() -> None:
    """Print a row for each set of options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--only", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    options = parser.parse_args()
    print("| options | processor s | peak MiB |\n| --- | --- | --- |")
    context = multiprocessing.get_context("spawn")
    for name in options.only:
        receiver, sender = context.Pipe(duplex=False)
        arguments = (options.model, OPTIONS[name], options.seconds, sender)
        child = context.Process(target=opened, args=arguments)
        child.start()
        sender.close()
        child.join()
        cells = f"more than {options.seconds} | -"
        if child.exitcode == 0:
            spent, peak = receiver.recv()
            cells = f"{spent:.1f} | {peak:.0f}"
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
