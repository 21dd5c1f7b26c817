"""The study's tables 2 to 7 beside ours: parameters, operations, memory of training, latency.

To run it::

    python -m studies.vit.published

Weights are random and no data is needed. Ours: operations are multiply-adds, as in the study;
memory is what an image in a batch of 64 keeps for the backward pass, scores as a matrix (the study:
peak of a GPU); latency is processor time of PyTorch on one thread, interleaved (the study: a V100).
Each cell is paper / ours; where the study prints nothing, ours only.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from nystra.models.vit.network import ViT
from nystra.runtime.timing.turns import time_in_turns
from studies.vit.networks import LARGE, in_torch, operations

BATCH = 64

PARAMETERS = {"full": 3.7, "linformer 256": 5.3, "performer 64": 3.4, "hybrid 64": 4.0}
"""Millions at patch 8."""

PAPER: Mapping[int, Mapping[str, tuple[float, int, float]]] = {
    8: {
        "full": (8.53, 13273, 1.94),
        "linformer 32": (10.32, 9448, 1.48),
        "linformer 64": (10.38, 9859, 1.52),
        "linformer 128": (10.64, 10667, 1.60),
        "linformer 256": (11.00, 12256, 1.76),
        "nystromformer 32": (28.12, 10100, 1.57),
        "nystromformer 64": (27.74, 12135, 1.84),
        "performer 32": (17.36, 9672, 1.32),
        "performer 64": (17.15, 10321, 1.32),
        "performer 128": (17.08, 11600, 1.32),
        "performer 256": (17.11, 14129, 1.32),
        "hybrid 64": (10.50, 11000, 1.60),
    },
    10: {
        "full": (8.47, 7720, 1.13),
        "linformer 32": (10.31, 6271, 0.95),
        "linformer 64": (10.56, 6565, 0.98),
        "linformer 128": (12.73, 7128, 1.03),
        "linformer 256": (13.10, 8226, 1.13),
        "nystromformer 32": (20.50, 6900, 0.90),
        "nystromformer 64": (21.20, 7450, 0.90),
        "performer 32": (17.49, 6329, 0.85),
        "performer 64": (17.76, 6764, 0.85),
        "performer 128": (18.38, 7609, 0.85),
        "performer 256": (17.11, 9275, 0.85),
        "hybrid 64": (10.90, 7100, 1.05),
    },
    16: {
        "full": (8.58, 2942, 0.41),
        "linformer 32": (10.70, 2836, 0.38),
        "linformer 64": (10.66, 2998, 0.39),
        "linformer 128": (10.16, 3296, 0.41),
        "linformer 256": (10.83, 3862, 0.45),
        "nystromformer 32": (18.30, 3100, 0.36),
        "nystromformer 64": (18.90, 3400, 0.36),
        "performer 32": (17.43, 2734, 0.34),
        "performer 64": (17.22, 2936, 0.34),
        "performer 128": (17.36, 3316, 0.34),
        "performer 256": (17.28, 4048, 0.34),
        "hybrid 64": (10.80, 3100, 0.40),
    },
}
"""Patch -> attention -> latency in ms, memory in MB, GFLOPs (tables 2 to 4; hybrids 5 to 7)."""


def network(name: str, patch: int) -> ViT:
    """Return a network of the study by the name of its row."""
    kind, _, number = name.partition(" ")
    rank = int(number or 0)
    options: dict[str, dict[str, Any]] = {
        "full": {},
        "linformer": {"attention": "linformer", "linformer_k": rank},
        "performer": {"attention": "performer", "rp_dim": rank, "output_projection": False},
        "nystromformer": {"attention": "nystromformer", "num_landmarks": rank, "start": "exact"},
        "hybrid": {"attention": "linformer", "linformer_k": rank, "stem": "convolutions"},
    }
    torch.manual_seed(0)
    return ViT(**LARGE | {"patch_size": patch} | options[kind]).eval()


def kept_for_training(network: nn.Module, side: int) -> int:
    """Return the bytes that one image keeps for the backward pass, without the weights.

    Args:
        network: On the device ``meta``: nothing is computed.
        side: Of the image, in pixels.
    """
    weights = {value.untyped_storage()._cdata for value in network.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage  # held, so that no other one gets its place
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        sdpa_kernel(SDPBackend.MATH),
    ):
        network(torch.zeros(1, 3, side, side, device="meta"))
    return sum(storage.nbytes() for storage in kept.values())


def counted(name: str, patch: int) -> tuple[float, float, float]:
    """Return millions of parameters, 10^9 multiply-adds and MB of a training by batches of 64."""
    shape = network(name, patch).to("meta")
    side, _ = LARGE["image_size"]
    parameters = sum(value.numel() for value in shape.parameters())
    kept = BATCH * kept_for_training(shape, side)
    return parameters / 1e6, operations(shape, (side, side)) / 2e9, kept / 1e6


def latencies(patch: int, rounds: int) -> dict[str, float]:
    """Return the median processor time of one image, in seconds, by name of a row."""
    image = torch.rand(1, 3, *LARGE["image_size"])
    calls = {name: in_torch(network(name, patch), image) for name in PAPER[patch]}

    def active(times: Mapping[str, Sequence[float]]) -> list[str]:
        return [name for name in calls if len(times[name]) <= rounds]

    times = time_in_turns(calls, active, time.process_time)
    return {name: statistics.median(each[1:]) for name, each in times.items()}  # the first warms up


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="of timing (15); 0: not timed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for patch, rows in PAPER.items():
        medians: Mapping[str, float] = {}
        if options.rounds:
            medians = latencies(patch, options.rounds)
        print(f"\n| patch {patch} | parameters, M | GMAC | training memory, MB | latency, ms |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for name, (latency, memory, gflops) in rows.items():
            millions, gmac, megabytes = counted(name, patch)
            stated = f"{PARAMETERS[name]} / " if patch == 8 and name in PARAMETERS else ""
            timed = f" / {1e3 * medians[name]:.1f}" if medians else ""
            print(
                f"| {name} | {stated}{millions:.2f} | {gflops:.2f} / {gmac:.2f} | "
                f"{memory:,} / {megabytes:,.0f} | {latency:.1f}{timed} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
