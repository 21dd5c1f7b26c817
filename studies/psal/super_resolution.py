"""CSNLN with exact attention and with PSAL: table 7 of the PSAL paper.

    python -m studies.psal.super_resolution csnln_x2.safetensors \
        --set Set5 Set5/LR_bicubic/X2 Set5/HR --set Set14 Set14/image_SRF_2 Set14/image_SRF_2

Exact attention compares every pixel with every patch, so that images are cut to the ``--side`` x
``--side`` pixels in the middle of the input. ``psal`` is the paper's form: PSAL between the scales,
local attention within one; ``psal between scales`` keeps exact attention within one. PSNR is that
of the luma, without ``scale`` pixels of border. PyTorch, with the operators' CPU kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from nystra.core.arrays import Array
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.plan import Plan
from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import find_sites, resolve, swap
from nystra.models import load
from nystra.models.sites import PatchSite
from nystra.runtime.images.images import read_image
from nystra.runtime.images.pairs import pair_images
from nystra.runtime.metrics.image_quality import psnr, ssim

PLANS: Mapping[str, tuple[Mechanism, bool]] = {
    "full": (mechanism("full"), True),
    "psal between scales": (mechanism("psal"), False),
    "psal": (mechanism("psal"), True),
    "psal, 1 neighbor": (mechanism("psal", neighbors=1), True),
}
"""Name of a row -> its mechanism, and whether that is also used within a scale."""


def planned(network: nn.Module, name: str) -> nn.Module:
    """Return a network with the attention of a row."""
    chosen, everywhere = PLANS[name]
    sites = {
        site.path: chosen
        for site in find_sites(network)
        if everywhere or isinstance(site.module, PatchSite)
    }
    return swap(network, resolve(Plan(sites=sites), network), "operator")


def pairs(inputs: Path, truths: Path, side: int, scale: int) -> list[tuple[Array, Array]]:
    """Return the middles of images (H, W, 3), 0..1, small and large; without the gray ones."""
    found = []
    for low, high in pair_images(inputs, truths):
        small, large = read_image(low).pixels, read_image(high).pixels
        if small.shape[2] == 1:
            continue
        top, left = (max(0, length - side) // 2 for length in small.shape[:2])
        part = small[top : top + side, left : left + side]
        height, width = (scale * length for length in part.shape[:2])
        corner = large[scale * top :, scale * left :]
        found.append((part, corner[:height, :width]))
    return found


def quality(output: torch.Tensor, truth: Array, scale: int) -> tuple[float, float]:
    """Return PSNR and SSIM of an output (1, 3, H, W), rounded to 8 bit."""
    image = output.clamp(0, 1).mul(255).round().div(255)[0].permute(1, 2, 0).numpy()
    return (
        psnr(image, truth, crop_border=scale, channel="y"),
        ssim(image, truth, crop_border=scale, channel="y"),
    )


def main() -> None:
    """Print a table for each set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument(
        "--set", action="append", required=True, nargs=3, metavar=("NAME", "INPUTS", "TRUTHS")
    )
    parser.add_argument("--side", type=int, default=96, help="pixels of an input (96)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load(options.checkpoint)
    scale = model.facts.scale
    networks = {name: planned(model.network, name) for name in PLANS}
    for name, inputs, truths in options.set:
        images = pairs(Path(inputs), Path(truths), options.side, scale)
        rows: dict[str, list[tuple[float, float]]] = {}
        for small, truth in images:
            given = torch.from_numpy(small.transpose(2, 0, 1)[None].astype(np.float32))
            with torch.inference_mode():
                outputs = {plan: network(given) for plan, network in networks.items()}
                outputs["bicubic"] = F.interpolate(given, scale_factor=scale, mode="bicubic")
            for plan, output in outputs.items():
                rows.setdefault(plan, []).append(quality(output, truth, scale))
        print(f"{name}, {len(images)} images")
        for plan, figures in rows.items():
            decibels, similarity = np.mean(figures, 0)
            lost = np.mean(rows["full"], 0) - (decibels, similarity)
            print(f"| {plan} | {decibels:.2f} / {similarity:.4f} | {lost[0]:.2f} / {lost[1]:.4f} |")


if __name__ == "__main__":
    main()
