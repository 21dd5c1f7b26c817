"""Plain ONNX exports of networks with attention, and the same files with nystra's nodes in them.

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

from nystra.export import ExportOptions, Plan, export_model, mechanism

SIDE = 32

CASES = (
    "SwinIR:script:13:free",
    "SwinIR:script:17:fixed",
    "SwinIR:script:17:free",
    "SwinIR:dynamo:18:fixed",
    "SwinIR:dynamo:20:free",
    "HAT:script:17:free",
    "HAT:dynamo:18:fixed",
    "DAT:dynamo:18:fixed",
    "Swin2SR:script:17:free",
    "swin_t:script:17:fixed",
    "swin_t:dynamo:18:fixed",
    "vit_b_16:script:17:fixed",
)
"""Network, exporter, opset, and whether height and width are free."""


def _networks() -> dict[str, Callable[[], nn.Module]]:
    import torchvision
    from spandrel.architectures.DAT import DAT
    from spandrel.architectures.HAT import HAT
    from spandrel.architectures.Swin2SR import Swin2SR
    from spandrel.architectures.SwinIR import SwinIR

    usual: dict[str, Any] = {"img_size": 16, "embed_dim": 24, "num_heads": [2], "upscale": 2}
    direct = {"depths": [2], "window_size": 8, "upsampler": "pixelshuffledirect"}
    dat = {"embed_dim": 64, "expansion_factor": 2}
    hat = {"compress_ratio": 3, "squeeze_factor": 4, "num_feat": 16}
    return {
        "SwinIR": lambda: SwinIR(**usual, **direct),
        "HAT": lambda: HAT(**usual, **hat, depths=[2], window_size=8),
        "DAT": lambda: DAT(**usual | dat, depth=[2], split_size=[4, 8]),
        "Swin2SR": lambda: Swin2SR(**usual, **direct),
        "swin_t": torchvision.models.swin_t,
        "vit_b_16": torchvision.models.vit_b_16,
    }


def write_plain(case: str, folder: Path) -> Path:
    """Write the file of a case as PyTorch does; return its path."""
    name, exporter, opset, sizes = case.split(":")
    torch.manual_seed(0)
    network = _networks()[name]().eval()
    side = 224 if name in ("swin_t", "vit_b_16") else SIDE
    image, path = torch.rand(1, 3, side, side), folder / f"{case.replace(':', '_')}.onnx"
    named: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
    if exporter == "dynamo":
        free = torch.export.Dim.DYNAMIC
        shapes = ({2: free, 3: free},) if sizes == "free" else None
        named |= {"dynamo": True, "dynamic_shapes": shapes, "external_data": False}
    else:
        axes = {"x": {2: "h", 3: "w"}, "y": {2: "H", 3: "W"}} if sizes == "free" else None
        named |= {"dynamo": False, "dynamic_axes": axes}
    torch.onnx.export(network, (image,), path, opset_version=int(opset), verbose=False, **named)
    return path


def difference(first: Path, second: Path) -> float:
    """Return the largest difference of two files in plain onnxruntime, of the largest value."""
    sessions = [
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        for path in (first, second)
    ]
    shape = sessions[0].get_inputs()[0].shape
    free = isinstance(shape[2], str)
    worst = 0.0
    for size in ((32, 32), (48, 64), (64, 40)) if free else (shape[2:],):
        image = np.random.default_rng(0).random((1, 3, *size)).astype(np.float32)
        one, other = (session.run(None, {"x": image})[0] for session in sessions)
        worst = max(worst, float(np.abs(one - other).max() / np.abs(other).max()))
    return worst


def measured(case: str, folder: Path, attention: str) -> str:
    """Return a row of the table."""
    plain, ours = write_plain(case, folder), folder / "ours.onnx"
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
    parser = argparse.ArgumentParser(description=__doc__)
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
