"""Why `nystra` loses in the restorer with global attention: its threshold, and its landmarks.

    python -m studies.tokens.landmarks dit.safetensors --data BSDS500 --side 64 --images 6

Kernel Nystrom in double precision with an exact pseudoinverse, so that iterations and precision are
no part of the loss; without landmarks first, then with those of ROWS.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from studies.tokens.restorer import PATCH, Restorer
from studies.training.data import read_pairs
from studies.training.denoising import middle, with_noise
from studies.training.restoring import psnr_of_error

NONE = 1e9
GUARDS = (0.02, 1e-30)
ROWS = (0, 4, 8, 16)  # of landmarks, and as many columns; 0: no landmarks


class Attend:
    """Attention with the kernel of nystra, of a square map; also the largest logit it has seen."""

    def __init__(self, rows: int, threshold: float, side: int, guard: float) -> None:
        self.rows, self.threshold, self.side, self.guard = rows, threshold, side, guard
        self.largest = 0.0

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return attention (B, heads, N, D) of queries, keys and values of that shape."""
        q, k, v = q.double() * q.shape[-1] ** -0.5, k.double(), v.double()
        if not self.rows:
            weights = self.kernel(q, k)
            return (weights @ v / weights.sum(-1, keepdim=True)).float()
        near, far = self.cells(q), self.cells(k)
        ones = torch.cat([v, torch.ones_like(v[..., :1])], -1)
        inverse = torch.linalg.pinv(self.kernel(near, far), rcond=1e-6)
        rows, columns = self.kernel(q, far), self.kernel(near, k)
        weights, read = rows @ inverse, columns @ ones
        sums, terms = weights @ read, weights.abs() @ read[..., -1:]
        share = sums[..., -1:] / terms
        kept = ((share - self.guard) / self.guard).clamp(0, 1)
        convex = rows / rows.sum(-1, keepdim=True) @ (read[..., :-1] / read[..., -1:])
        linear = sums[..., :-1] / sums[..., -1:].maximum(self.guard * terms)
        return (convex + kept * (linear - convex)).float()

    def kernel(self, q: Tensor, k: Tensor) -> Tensor:
        """Return exp of the products up to the threshold, and a line beyond it."""
        logits = q @ k.mT
        self.largest = max(self.largest, float(logits.max()))
        return logits.clamp(max=self.threshold).exp() + (logits - self.threshold).clamp(min=0)

    def cells(self, tokens: Tensor) -> Tensor:
        """Return the mean tokens of the cells of the map."""
        maps = tokens.flatten(0, 1).mT.unflatten(2, (self.side, self.side))
        return F.adaptive_avg_pool2d(maps, self.rows).flatten(2).mT.unflatten(0, tokens.shape[:2])


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--images", type=int, default=6)
    chosen = parser.parse_args()
    side = chosen.side // PATCH
    network = Restorer()
    network.load_state_dict(load_file(chosen.weights))
    pairs = read_pairs(chosen.data / "val", 1, 256, 6)[: chosen.images]

    def psnr(attend: Attend) -> float:
        for block in network.blocks:
            setattr(block, "attend", attend)  # noqa: B010 - a module's attribute
        found = []
        for number, pair in enumerate(pairs):
            clean = middle(pair.large, chosen.side)
            noisy = torch.from_numpy(with_noise(clean, network.sigma, (number,)))
            with torch.no_grad():
                restored = network(noisy.permute(2, 0, 1)[None] / 255)[0].permute(1, 2, 0)
            error = restored.clamp(0, 1).mul(255).round() - torch.from_numpy(clean)
            found.append(psnr_of_error(error))
        return sum(found) / len(found)

    exact = Attend(0, NONE, side, GUARDS[0])
    full = psnr(exact)
    print(f"full {full:.2f} dB, largest logit {exact.largest:.1f}")
    for threshold, guard in itertools.product((NONE, 5.0), GUARDS):
        losses = [psnr(Attend(rows, threshold, side, guard)) - full for rows in ROWS]
        row = " | ".join(f"{loss:+.2f}" for loss in losses)
        print(f"| {threshold:g} | {guard:g} | {row} |", flush=True)


if __name__ == "__main__":
    main()
