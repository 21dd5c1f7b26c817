"""Plain ONNX exports of networks with attention, and the same files with nystra's nodes.

    OMP_NUM_THREADS=1 python -m studies.performance.onnx_files
    OMP_NUM_THREADS=1 python -m studies.performance.onnx_files SwinIR:script:17:free swin_t:dynamo:18:fixed

Each is written by PyTorch (`script`: the TorchScript exporter, `dynamo`: ``torch.export``), weights from a seed, and exported
with `--attn full`. Printed are nodes before and after, the largest difference of both files in plain onnxruntime, of the largest
value, and the median ratio of times in interleaved runs with the operator library.
"""  # noqa: E501

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from nystra.export import ExportOptions, Plan, export_model, mechanism
from studies.performance.plain_exports import PUBLISHED, SMALL, Plain, write_plain

CASES = (
    "SwinIR:script:13:free",
    "SwinIR:script:17:free",
    "SwinIR:dynamo:20:free",
    "HAT:script:17:free",
    "HAT:dynamo:18:fixed",
    "DAT:script:17:free",
    "Swin2SR:script:17:free",
    "swin_t:script:17:fixed",
    "swin_t:dynamo:18:fixed",
    "vit_b_16:script:17:fixed",
    "vit_b_16:dynamo:20:batch",
)
"""Network, exporter, opset, and what is free: nothing, height and width, or the batch."""


def _plain_of(name: str) -> Plain:
    """Return a restoration network in small, or a classifier at its published size."""
    return PUBLISHED[name] if SMALL[name].library == "torchvision" else SMALL[name]


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


def measured(case: str, folder: Path, attention: str) -> str:
    """Return a row of the table."""
    name, exporter, opset, sizes = case.split(":")
    plain = write_plain(_plain_of(name), exporter, int(opset), sizes, folder / "plain.onnx")
    ours = folder / "ours.onnx"
    options = ExportOptions(plan=Plan(mechanism(attention)), overwrite=True)
    result = export_model(plain, ours, options)
    network: Any = result.source.loaded.network
    sites, left = len(result.source.resolved), len(network.left)
    speed = "the file's own nodes are kept"
    if result.speed is not None:
        low, high = result.speed.spread
        size = "x".join(map(str, result.speed.size))
        speed = f"{result.speed.ratio:.2f} ({low:.2f} to {high:.2f}) at {size}"
    nodes = f"{len(onnx.load(plain).graph.node)} | {result.nodes}"
    return (
        f"| {' '.join(case.split(':'))} | {nodes} | {sites - left} of {sites} | "
        f"{difference(ours, plain):.0e} | {speed} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", default=CASES, help="NETWORK:EXPORTER:OPSET:SIZES")
    parser.add_argument("--attn", default="full", help="the mechanism")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print("| file | nodes | after | replaced | difference | times as fast |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(measured(case, Path(folder), args.attn), flush=True)
            except Exception as error:  # the others are still wanted
                print(f"| {' '.join(case.split(':'))} | {error} |", flush=True)


if __name__ == "__main__":
    main()
