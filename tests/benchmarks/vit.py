# ruff: noqa: T201
"""Vision transformers with each attention: parameters, operations, and time against tokens.

Not a test: run it by hand::

    python tests/benchmarks/vit.py count            # parameters and GFLOPs
    python tests/benchmarks/vit.py time             # PyTorch, one thread, interleaved runs
    python tests/benchmarks/vit.py time --onnx      # the same networks as files in onnxruntime

Weights are random: nothing here is said of accuracy. ``trained`` attentions are those of networks
built with them, ``swapped`` ones take the place of exact attention in a network built with that.
A multiplication with its addition counts as two operations.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nystra.export.attention.plan import Plan
from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import find_sites, resolve, swap
from nystra.models.vit.network import ViT
from nystra.runtime.timing.interleaved import interleaved

CIFAR: dict[str, Any] = {"image_size": (32, 32), "patch_size": 4}
"""The study's configuration for CIFAR-10: 64 tokens and the class token, width 48."""

LARGE: dict[str, Any] = {
    "image_size": (160, 160),
    "patch_size": 8,
    "hidden_size": 256,
    "intermediate_size": 512,
    "depth": 6,
    "num_heads": 8,
}
"""400 tokens. The study does not give these numbers; they come near its 3.7 million parameters."""

TRAINED: dict[str, dict[str, Any]] = {
    "full": {},
    "linformer k=32": {"attention": "linformer", "linformer_k": 32},
    "linformer k=64": {"attention": "linformer", "linformer_k": 64},
    "performer r=32": {"attention": "performer", "rp_dim": 32},
    "performer r=64": {"attention": "performer", "rp_dim": 64},
    "nystromformer m=32": {"attention": "nystromformer", "num_landmarks": 32, "start": "exact"},
    "nystromformer m=64": {"attention": "nystromformer", "num_landmarks": 64, "start": "exact"},
    "convolutions + linformer k=64": {
        "attention": "linformer",
        "linformer_k": 64,
        "stem": "convolutions",
    },
}
SWAPPED: dict[str, dict[str, Any]] = {
    "nystromformer": {},
    "nystra": {},
    "cluster": {},
    "performer": {},
}
TIMED = ("full", "linformer k=32", "performer r=64", "nystromformer m=32")
SIDES = (32, 64, 128, 256)


def counted(network: nn.Module, size: tuple[int, int]) -> float:
    """Return the operations of one picture."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        network(torch.zeros(1, 3, *size))
    return float(counter.get_total_flops())


def count() -> None:
    """Print parameters and GFLOPs of every trained attention."""
    print("| network | attention | parameters | GFLOPs | of these attention |")
    print("| --- | --- | ---: | ---: | ---: |")
    for title, shape in (("32 pixels, patch 4", CIFAR), ("160 pixels, patch 8", LARGE)):
        for name, more in TRAINED.items():
            network = ViT(**shape | more).eval()
            whole = counted(network, shape["image_size"])
            for site in find_sites(network):
                idle: Any = _nothing
                site.module.mechanism = idle
            rest = counted(network, shape["image_size"])
            parameters = sum(value.numel() for value in network.parameters())
            figures = f"{parameters:,} | {whole / 1e9:.4f} | {(whole - rest) / whole:.0%}"
            print(f"| {title} | {name} | {figures} |", flush=True)


def _nothing(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
    return v


def networks(side: int) -> dict[str, nn.Module]:
    """Return what is timed at a side, by name."""
    shape = CIFAR | {"image_size": (side, side)}
    made: dict[str, nn.Module] = {name: ViT(**shape | TRAINED[name]).eval() for name in TIMED}
    exact = made["full"]
    for name, parameters in SWAPPED.items():
        plan = Plan(mechanism(name, **parameters))
        made[f"{name}, swapped"] = swap(exact, resolve(plan, exact))
    return made


def in_torch(network: nn.Module, picture: Tensor) -> Callable[[], object]:
    """Return a call in PyTorch."""

    def call() -> object:
        with torch.no_grad():
            return network(picture)

    return call


def in_onnxruntime(network: nn.Module, picture: Tensor, folder: Path) -> Callable[[], object]:
    """Return a call of the traced network in plain onnxruntime."""
    import onnxruntime as ort

    path = folder / f"{len(list(folder.iterdir()))}.onnx"
    torch.onnx.export(network, (picture,), path, dynamo=True, verbose=False)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: picture.numpy()}
    return lambda: session.run(None, feed)


def time(seconds: float, sides: list[int], *, onnx: bool) -> None:
    """Print the time of full attention over that of each other, by tokens."""
    torch.set_num_threads(1)
    rows: dict[str, list[str]] = {}
    for side in sides:
        picture = torch.rand(1, 3, side, side)
        with tempfile.TemporaryDirectory() as folder:
            calls = {
                name: in_onnxruntime(network, picture, Path(folder))
                if onnx
                else in_torch(network, picture)
                for name, network in networks(side).items()
            }
            timing = interleaved(calls, seconds, maximum=1000)
        for name in calls:
            if name == "full":
                cell = f"{timing.medians[name] * 1e3:.1f} ms"
            else:
                cell = f"{timing.ratios['full', name]:.2f}"
            rows.setdefault(name, []).append(cell)
        print(f"{side}: {timing.rounds} rounds", flush=True)
    print("| attention | " + " | ".join(str((side // 4) ** 2) for side in sides) + " |")
    print("| --- |" + " ---: |" * len(sides))
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Read the command line and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("count", "time"))
    parser.add_argument("--seconds", type=float, default=20.0, help="of each size (20)")
    parser.add_argument("--sides", type=int, nargs="+", default=list(SIDES), help="of the picture")
    parser.add_argument("--onnx", action="store_true", help="files in onnxruntime")
    arguments = parser.parse_args()
    if arguments.what == "count":
        count()
    else:
        time(arguments.seconds, arguments.sides, onnx=arguments.onnx)


if __name__ == "__main__":
    main()
