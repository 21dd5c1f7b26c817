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
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANNELS, PATCH, WINDOW = 16, 7, 50
DEPTH = CHANNELS * PATCH * PATCH
FEATURES = int(DEPTH * math.log(DEPTH))
"""Random features of the Performer, M = d log d."""

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
        "psal 3": 3.0 * n * (2 + CHANNELS),
        "psal 3 aggregated": 3.0 * n * (2 + CHANNELS + 1),
    }[method]


def layer(method: str) -> Callable[..., Any]:
    """Return a function of query, key and value (1, 16, H, W) in PyTorch."""
    import torch
    import torch.nn.functional as F

    from nystra.models.layers.patches import neighborhoods

    def tokens(image: Any) -> Any:
        return neighborhoods(image, PATCH, "replicate").flatten(2)[0].T

    def full(q: Any, k: Any, v: Any) -> Any:
        scores = 2.0 * tokens(q) @ tokens(k).T
        scores -= tokens(k).square().sum(1)
        return scores.softmax(1) @ v[0].flatten(1).T

    def local(q: Any, k: Any, v: Any) -> Any:
        """Every pixel attends to the 50 x 50 pixels around it; patch scores are box sums."""
        low, high = WINDOW // 2, WINDOW - WINDOW // 2 - 1
        height, width = q.shape[2:]
        around = F.pad(k, (low, high, low, high), mode="replicate")
        scores = q.new_empty(WINDOW * WINDOW, height, width)
        for row in range(WINDOW):
            for column in range(WINDOW):
                moved = around[:, :, row : row + height, column : column + width]
                cost = (q - moved).square().sum(1, keepdim=True)
                cost = F.pad(cost, (PATCH // 2,) * 4, mode="replicate")
                scores[row * WINDOW + column] = -F.avg_pool2d(cost, PATCH, 1)[0, 0] * PATCH**2
        weights = scores.softmax(0)
        values = F.pad(v, (low, high, low, high), mode="replicate")
        out = torch.zeros_like(v)
        for row in range(WINDOW):
            for column in range(WINDOW):
                moved = values[:, :, row : row + height, column : column + width]
                out += weights[row * WINDOW + column] * moved
        return out

    def linear(q: Any, k: Any, v: Any) -> Any:
        a, b = F.elu(tokens(q)) + 1, F.elu(tokens(k)) + 1
        values = v[0].flatten(1).T
        return (a @ (b.T @ values)) / (a @ b.sum(0)).unsqueeze(1)

    def performer(q: Any, k: Any, v: Any) -> Any:
        projection = torch.randn(FEATURES, DEPTH) / DEPTH**0.25

        def features(x: Any) -> Any:
            projected = x @ projection.T
            projected -= x.square().sum(1, keepdim=True) / (2 * DEPTH**0.5)
            return (projected - projected.amax()).exp_()

        a, b = features(tokens(q)), features(tokens(k))
        values = v[0].flatten(1).T
        return (a @ (b.T @ values)) / (a @ b.sum(0)).unsqueeze(1)

    return {"full": full, "local": local, "linear": linear, "performer": performer}[method]


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
        compute = layer(method)
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
    methods = ("full", "local", "linear", "performer", "psal 3", "psal 3 aggregated")
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
