"""What linear attention without retraining loses in a restorer with global attention.

    python -m studies.training --network dit --data BSDS500 --steps 2200 --threads 1 \\
        --out dit.safetensors
    python -m studies.tokens.quality dit.safetensors --data BSDS500 --out quality.json

PSNR over RGB of the middle of photographs of ``val/`` at sides of 64 (as trained), 128 and 256
pixels, a quarter as many tokens; *mean* gives every query the mean of all values: what attention
is worth at all.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from nystra.core.json_text import stable_json
from nystra.export import mechanism
from nystra.export.attention.implementation import implement
from nystra.models.sites import MapSite
from studies.tokens.costs import KINDS
from studies.tokens.restorer import PATCH, Restorer
from studies.training.data import read_pairs
from studies.training.denoising import middle, with_noise
from studies.training.restoring import psnr_of_error

SIDES = {64: 24, 128: 12, 256: 6}  # and photographs of each


def with_mechanism(network: Restorer, kind: str, side: int) -> Restorer:
    """Set the attention of all blocks, for images of a side; the network is changed."""
    name, settings = KINDS.get(kind, ("full", {}))
    computed: Any = implement(mechanism(name, **settings).at(None), MapSite(), "plain")
    sides = side // PATCH, side // PATCH

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if kind == "mean":
            return v.mean(2, keepdim=True).expand_as(v)
        maps = [part.flatten(0, 1).mT.unflatten(2, sides) for part in (q, k, v)]
        out: Tensor = computed(*maps, q.shape[-1] ** -0.5)
        return out.flatten(2).mT.unflatten(0, q.shape[:2])

    for block in network.blocks:
        setattr(block, "attend", attend)  # noqa: B010 - a module's attribute, for the annotations
    return network


def main() -> None:
    """Measure, print a table in Markdown, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    network = Restorer()
    network.load_state_dict(load_file(chosen.weights))
    pairs = read_pairs(chosen.data / "val", 1, max(SIDES), max(SIDES.values()))
    rows = []
    for side, count in SIDES.items():
        found: dict[str, list[float]] = {}
        for number, pair in enumerate(pairs[:count]):
            clean = middle(pair.large, side)
            noisy = with_noise(clean, network.sigma, (number,))
            image = torch.from_numpy(noisy).permute(2, 0, 1)[None] / 255
            found.setdefault("noisy", []).append(psnr_of_error(torch.from_numpy(noisy - clean)))
            for kind in (*KINDS, "mean"):
                with torch.no_grad():
                    restored = with_mechanism(network, kind, side)(image)[0].permute(1, 2, 0)
                error = restored.clamp(0, 1).mul(255).round() - torch.from_numpy(clean)
                found.setdefault(kind, []).append(psnr_of_error(error))
        mean = {kind: sum(figures) / len(figures) for kind, figures in found.items()}
        rows += [
            {"side": side, "images": count, "kind": kind, "psnr": figure}
            for kind, figure in mean.items()
        ]
        losses = [f"{mean[kind] - mean['full']:+.2f}" for kind in (*KINDS, "mean")][1:]
        print(f"| {side} | {mean['noisy']:.2f} | {mean['full']:.2f} | {' | '.join(losses)} |")
    chosen.out.write_bytes(stable_json(rows))


if __name__ == "__main__":
    main()
