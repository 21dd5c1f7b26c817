"""PSNR and SSIM of a video network with several attentions: the paper's table V.

    python -m studies.rvrt.accuracy rvrt_x4.safetensors vid4/L_input vid4/calendar

The folders hold the frames of one video, small and large, in the order of their names. All frames,
or the first ``--frames``, are one input (ten of Vid4 take more than 6 GB), in PyTorch with the
operators' CPU kernels; figures are means over frames, of the luma or with ``--channel rgb`` of all
three channels, the output in 8 bit, without a border left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from nystra.core.arrays import Array
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.registry import mechanism
from nystra.models import LoadedModel, load
from nystra.runtime.images.images import read_image
from nystra.runtime.metrics.image_quality import psnr, ssim
from studies.quality.measure import with_kernels
from studies.quality.tables import nystra, nystromformer, published

PLANS: Mapping[str, Mechanism] = {
    "full": mechanism("full"),
    "nystra-published": published(16),
    "nystra": nystra(16),
    "nystromformer": nystromformer(16),
}
"""Name of a row -> what every window attention becomes; `cluster` knows no windows of frames."""


def frames(folder: Path) -> Array:
    """Return the PNG files of a folder as a video (t, H, W, 3), 0..1."""
    return np.stack([read_image(path).pixels for path in sorted(folder.glob("*.png"))])


def quality(video: Array, truth: Array, channel: str) -> tuple[float, float]:
    """Return the mean PSNR and SSIM over frames (t, H, W, 3), 0..1, the video rounded to 8 bit."""
    rounded = np.rint(np.clip(video, 0, 1) * 255) / 255
    pairs = list(zip(rounded, truth, strict=True))
    decibels, similarity = (
        float(np.mean([measure(got, wanted, channel=channel) for got, wanted in pairs]))
        for measure in (psnr, ssim)
    )
    return decibels, similarity


def restored(model: LoadedModel, plan: Mechanism, small: Array) -> Array:
    """Return the output of a plan for a video, (t, s H, s W, 3)."""
    given = torch.from_numpy(small.transpose(0, 3, 1, 2)[None].astype(np.float32))
    with torch.inference_mode():
        video: Array = with_kernels(model, plan)(given)[0].permute(0, 2, 3, 1).numpy()
    return video


def main() -> None:
    """Print a row for each attention."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("truths", type=Path)
    parser.add_argument("--plans", nargs="+", choices=PLANS, default=list(PLANS))
    parser.add_argument("--frames", type=int, help="of the video, an even number (all)")
    parser.add_argument("--channel", choices=("y", "rgb"), default="y", help="luma (y), or all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load(options.checkpoint)
    small, truth = (frames(f)[: options.frames] for f in (options.inputs, options.truths))
    channels_first = torch.from_numpy(small.transpose(0, 3, 1, 2).astype(np.float32))
    enlarged = F.interpolate(channels_first, truth.shape[1:3], mode="bicubic")
    videos = {"bicubic": enlarged.permute(0, 2, 3, 1).numpy()}
    videos |= {name: restored(model, PLANS[name], small) for name in options.plans}
    figures = {name: quality(video, truth, options.channel) for name, video in videos.items()}
    base = figures[options.plans[0]]
    for name, (decibels, similarity) in figures.items():
        lost = f"{base[0] - decibels:.2f} / {base[1] - similarity:.4f}"
        print(f"| {name} | {decibels:.2f} / {similarity:.4f} | {lost} |")


if __name__ == "__main__":
    main()
