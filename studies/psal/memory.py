"""Peak memory of attention layers: table 1 of the PSAL paper, on the CPU.

With the library built::

    python -m studies.psal.memory

Every figure comes from a process of its own: its peak resident memory during one call less its
resident memory just before. Patch 7, 16 channels, batch 1, float32. Figures above ``--limit`` GB
are computed from the sizes of the largest tensors instead, and marked ``*``. PSAL runs in
onnxruntime from an exported graph with the operator library, the others in PyTorch.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from studies.psal.competitors import COMPETITORS, WINDOW, features_of

ITERATIONS = 5
CHANNELS, PATCH = 16, 7
DEPTH = CHANNELS * PATCH * PATCH
FEATURES = features_of(DEPTH)
ROUNDS = 4
"""Of Reformer."""

GB = 1e9


def floats(method: str, side: int) -> float:
    """Return the number of floats in the largest simultaneous tensors of a method."""
    n = side * side
    patches = 2.0 * n * DEPTH
    return {
        "full": patches + 2.0 * n * n,
        "local": 2.0 * n * WINDOW * WINDOW,
        "linear": 2.0 * patches,
        "performer": patches + 4.0 * n * FEATURES,
        "reformer": 4.0 * patches + ROUNDS * n * (2 * 128 + CHANNELS),
        "psal 3": 3.0 * n * (2 + CHANNELS),
        "psal 3 aggregated": 3.0 * n * (2 + CHANNELS + 1),
    }[method]


def operations(method: str, side: int) -> float:
    """Return the multiply-adds of a method, without exponentials and sorting."""
    n = float(side * side)
    buckets = 2 * n // 64
    candidates = 3 + ITERATIONS * (16 * 3 + int(math.log2(side)) + 1)  # that PSAL scores at most
    psal = n * DEPTH * candidates
    return {
        "full": n * n * (DEPTH + CHANNELS),
        "local": n * WINDOW * WINDOW * 2 * CHANNELS,
        "linear": 2 * n * DEPTH * CHANNELS,
        "performer": 2 * n * FEATURES * (DEPTH + CHANNELS),
        "reformer": ROUNDS * 2 * n * (DEPTH * buckets / 2 + 128 * (DEPTH + CHANNELS)),
        "psal 3": psal,
        "psal 3 aggregated": psal + n * PATCH * PATCH * 3 * CHANNELS,
    }[method]


def exported(method: str, side: int, path: Path) -> None:
    """Write PSAL at one size as a model with the operator, without its body."""
    import torch

    from nystra.export.tracing.nodes import translation_table
    from studies.psal.layer import LayerOptions, Psal

    reconstruction = "aggregate" if method.endswith("aggregated") else "center"
    options = LayerOptions(3, PATCH, reconstruction=reconstruction)
    psal_layer = Psal(options, torch.ops.nystra.patch_match).eval()
    maps = tuple(torch.zeros(1, CHANNELS, side, side) for _ in range(3))
    table = translation_table()
    with torch.no_grad():
        program = torch.onnx.export(
            psal_layer, maps, dynamo=True, custom_translation_table=table, verbose=False
        )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    program.save(str(path))


def resident() -> tuple[int, int]:
    """Return the current and the peak resident memory of this process in bytes."""
    text = Path("/proc/self/status").read_text()
    fields = {line.split(":")[0]: line.split()[1] for line in text.splitlines() if "kB" in line}
    return 1024 * int(fields["VmRSS"]), 1024 * int(fields["VmHWM"])


def work(method: str, side: int, threads: int, model: str) -> None:
    """Measure one call in this process and print bytes and seconds."""
    import numpy as np

    random = np.random.default_rng(0)
    smooth = random.random((1, CHANNELS, side // 8, side // 8), dtype=np.float32)
    image = np.kron(smooth, np.ones((8, 8), np.float32))
    image += 0.1 * random.random(image.shape, dtype=np.float32)
    maps = [image, np.roll(image, (5, 9), (2, 3)), image]
    if method.startswith("psal"):
        import onnxruntime as ort

        from nystra.plugins.library import library_path

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.register_custom_ops_library(str(library_path()))
        session = ort.InferenceSession(model, options, ["CPUExecutionProvider"])
        names = [tensor.name for tensor in session.get_inputs()]

        def call() -> Any:
            return session.run(None, dict(zip(names, maps, strict=True)))
    else:
        import torch

        torch.set_num_threads(threads)
        compute = COMPETITORS[method]
        if method == "full":
            compute = partial(compute, at_once=1 << 40)
        tensors = [torch.from_numpy(array) for array in maps]
        with torch.inference_mode():
            compute(*(tensor[..., :16, :16] for tensor in tensors))  # libraries load what they load

        def call() -> Any:
            with torch.inference_mode():
                return compute(*tensors)

    before, _ = resident()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    print(json.dumps({"bytes": resident()[1] - before, "seconds": seconds}))


def measure(method: str, side: int, threads: int) -> dict[str, float]:
    """Return bytes and seconds of one call, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "psal.onnx")
        if method.startswith("psal"):
            exported(method, side, model)
        command = [
            sys.executable,
            "-m",
            "studies.psal.memory",
            "--work",
            method,
            "--sides",
            str(side),
        ]
        command += ["--threads", str(threads), "--model", str(model)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> None:
    """Print the table."""
    methods = (*COMPETITORS, "psal 3", "psal 3 aggregated")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--methods", nargs="+", default=list(methods), choices=methods)
    parser.add_argument("--limit", type=float, default=4.0, help="GB that are measured at most")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--model", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.sides[0], arguments.threads, arguments.model)
        return
    print("GB".ljust(20) + "".join(f"{side}x{side}".rjust(22) for side in arguments.sides))
    for method in arguments.methods:
        cells = []
        for side in arguments.sides:
            computed = 4 * floats(method, side) / GB
            if computed > arguments.limit:
                cells.append(f"{computed:.2f} *")
            else:
                measured = measure(method, side, arguments.threads)
                cells.append(f"{measured['bytes'] / GB:.3f} ({measured['seconds']:.1f} s)")
        print(method.ljust(20) + "".join(cell.rjust(22) for cell in cells), flush=True)


if __name__ == "__main__":
    main()
