"""Plain ONNX exports of networks with attention, and the same files with nystra's nodes.

    OMP_NUM_THREADS=1 python -m studies.performance.onnx_files
    OMP_NUM_THREADS=1 python -m studies.performance.onnx_files SwinIR:script:17:free swin_t:dynamo:18:fixed

Each is written by PyTorch (`script`: the TorchScript exporter, `dynamo`: ``torch.export``), weights from a seed, and exported
with `--attn full`. Printed are nodes before and after, the largest difference of both files in plain onnxruntime, of the largest
value, the ratio of times of the original in plain onnxruntime to the new file with the operator library, and these times:
processor time of one thread, median of interleaved runs, in brackets their quartiles.
"""  # noqa: E501

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.plugins.library import library_path
from studies.performance.bars import measure
from studies.performance.plain_exports import PUBLISHED, SMALL, write_plain

NETWORKS = {
    **SMALL,
    "SwinIR-light": PUBLISHED["SwinIR"],
    "DAT-light": PUBLISHED["DAT"],
    "swin_t": PUBLISHED["swin_t"],
    "vit_b_16": PUBLISHED["vit_b_16"],
}
"""Restoration networks in small, two of them and the classifiers at their published sizes."""

CASES = (
    "SwinIR:script:13:free",
    "SwinIR:script:17:free",
    "SwinIR:dynamo:20:free",
    "HAT:script:17:free",
    "HAT:dynamo:18:free",
    "DAT:script:17:free",
    "DAT:dynamo:20:free",
    "Swin2SR:script:17:free",
    "Swin2SR:dynamo:20:free",
    "SwinIR-light:script:17:fixed",
    "SwinIR-light:dynamo:20:fixed",
    "DAT-light:script:17:fixed",
    "DAT-light:dynamo:20:fixed",
    "swin_t:script:17:fixed",
    "swin_t:dynamo:18:fixed",
    "vit_b_16:script:17:fixed",
    "vit_b_16:dynamo:20:batch",
)
"""Network, exporter, opset, and what is free: nothing, height and width, or the batch."""

SIDE = 128
"""Side of the timed image if the file takes any size."""

ROUNDS = 20
"""Timed runs of each file."""


def difference(first: Path, second: Path) -> float:
    """Return the largest relative difference of two files in plain onnxruntime."""
    sessions = [
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        for path in (first, second)
    ]
    shape = sessions[0].get_inputs()[0].shape
    free = isinstance(shape[2], str)
    worst = 0.0
    batch = 2 if isinstance(shape[0], str) else 1
    for size in ((64, 64), (96, 64), (64, 160)) if free else (shape[2:],):
        image = np.random.default_rng(0).random((batch, 3, *size)).astype(np.float32)
        one, other = (session.run(None, {"x": image})[0] for session in sessions)
        worst = max(worst, float(np.abs(one - other).max() / np.abs(other).max()))
    return worst


def session_of(path: Path, *, library: bool) -> onnxruntime.InferenceSession:
    """Return a session of one thread, plain or with the operator library."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if library:
        options.register_custom_ops_library(str(library_path()))
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def speed(ours: Path, plain: Path) -> str:
    """Return the size of the image, the ratio of times and the milliseconds of both files."""
    sessions = {"plain": session_of(plain, library=False), "ours": session_of(ours, library=True)}
    shape = sessions["plain"].get_inputs()[0].shape
    size = [SIDE if isinstance(side, str) else side for side in shape[2:]]
    image = np.random.default_rng(0).random((1, 3, *size)).astype(np.float32)
    runs = {name: partial(session.run, None, {"x": image}) for name, session in sessions.items()}
    times = measure(runs, ROUNDS, time.thread_time)
    slow, fast = np.array(times["plain"]), np.array(times["ours"])
    low, middle, high = np.percentile(slow / fast, (25, 50, 75))
    took = f"{np.median(slow):.1f} / {np.median(fast):.1f}"
    return f"{'x'.join(map(str, size))} | {middle:.2f} ({low:.2f} to {high:.2f}) | {took}"


def measured(case: str, folder: Path, attention: str) -> str:
    """Return a row of the table."""
    name, exporter, opset, sizes = case.split(":")
    plain = write_plain(NETWORKS[name], exporter, int(opset), sizes, folder / "plain.onnx")
    ours = folder / "ours.onnx"
    plan = Plan(mechanism(attention))
    result = export_model(plain, ours, ExportOptions(plan=plan, overwrite=True, speed=False))
    network: Any = result.source.loaded.network
    sites, left = len(result.source.resolved), len(network.kept_as_is)
    nodes = f"{len(onnx.load(plain).graph.node)} | {result.nodes}"
    return (
        f"| {' '.join(case.split(':'))} | {nodes} | {sites - left} of {sites} | "
        f"{difference(ours, plain):.0e} | {speed(ours, plain)} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", default=CASES, help="NETWORK:EXPORTER:OPSET:SIZES")
    parser.add_argument("--attn", default="full", help="the mechanism")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print("| file | nodes | after | replaced | difference | image | times as fast | ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(measured(case, Path(folder), args.attn), flush=True)
            except Exception as error:  # the others are still wanted
                print(f"| {' '.join(case.split(':'))} | {error} |", flush=True)


if __name__ == "__main__":
    main()
