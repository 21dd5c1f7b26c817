"""Reconstruct one frame of a video from another: tables 2 and 3 of the PSAL paper.

With the library built::

    python -m studies.psal.reconstruction A.png B.png --sheet build/reconstruction.png

Queries are the 7x7 patches of frame A, keys those of frame B, values the pixels of B, the metric
l2 on pixels in 0..1. Full attention at a stride takes every stride-th key in both directions, as
the paper does where all of them do not fit. ``exhaustive`` weighs the exact 3 nearest keys, which
is what PSAL 3 approximates.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nystra.models.layers.patches import neighborhoods
from studies.psal.layer import LayerOptions, matches, reconstruct
from studies.psal.search import kernel_search

PATCH = 7
STRIDES = {512: 10, 256: 5, 128: 2, 64: 1}
_ROWS = 1 << 24
"""Scores of full attention that are held at a time."""


def read(path: Path, side: int) -> Tensor:
    """Return an image (1, 3, side, side) in 0..1, bicubic if it is smaller."""
    image = Image.open(path).convert("RGB")
    if image.size != (side, side):
        image = image.resize((side, side), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).unsqueeze(0).float() / 255


def full(query: Tensor, key: Tensor, stride: int, temperature: float, best: int = 0) -> Tensor:
    """Return exact attention to every ``stride``-th key, in blocks of queries.

    Args:
        query: Frame A, (1, 3, H, W).
        key: Frame B, keys and values.
        stride: Of the keys, rows and columns.
        temperature: Divides the scores.
        best: 0 for the softmax over all keys, k for the k best.
    """
    q = neighborhoods(query, PATCH, "replicate")[0].flatten(1).T
    begin = stride // 2
    k = neighborhoods(key, PATCH, "replicate")[0][:, begin::stride, begin::stride].flatten(1)
    v = key[0, :, begin::stride, begin::stride].flatten(1).T
    squares = k.square().sum(0)
    parts = []
    for block in q.split(max(1, _ROWS // k.shape[1])):
        scores = (2.0 * block @ k - squares - block.square().sum(1, keepdim=True)) / temperature
        if best:
            top = scores.topk(best, 1)
            weights = top.values.softmax(1)
            parts.append((weights.unsqueeze(-1) * v[top.indices]).sum(1))
        else:
            parts.append(scores.softmax(1) @ v)
    return torch.cat(parts).T.reshape(query.shape)


def main() -> None:
    """Print both tables, and draw the sheet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("frames", type=Path, nargs=2)
    parser.add_argument("--sides", type=int, nargs="+", default=list(STRIDES))
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--exhaustive", type=int, default=128, help="largest side to search whole")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sheet", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results, images = {}, {}
    for side in arguments.sides:
        a, b = (read(path, side) for path in arguments.frames)
        outputs = {
            f"full, stride {STRIDES[side]}": full(a, b, STRIDES[side], arguments.temperature)
        }
        if side <= arguments.exhaustive:
            if STRIDES[side] != 1:
                outputs["full, stride 1"] = full(a, b, 1, arguments.temperature)
            outputs["exhaustive 3"] = full(a, b, 1, arguments.temperature, best=3)
        start = time.perf_counter()
        fields = {}
        for seed in (0, 1, 2):
            options = LayerOptions(3, PATCH, seed=seed, temperature=arguments.temperature)
            fields[seed] = matches(a, b, options, search=kernel_search)
        seconds = (time.perf_counter() - start) / 3
        for name, reconstruction in (("PSAL 3", "center"), ("PSAL 3 aggregated", "aggregate")):
            for seed, (index, score) in fields.items():
                options = LayerOptions(
                    3, PATCH, temperature=arguments.temperature, reconstruction=reconstruction
                )
                label = name if seed == 0 else f"{name}, seed {seed}"
                outputs[label] = reconstruct(index, score, b, options)
        errors = {name: (output - a).square().mean().item() for name, output in outputs.items()}
        errors["frame B itself"] = (b - a).square().mean().item()
        results[side] = errors | {"search seconds": seconds}
        images[side] = {"frame A": a, **outputs}
        print(f"{side}x{side}, search {seconds:.2f} s")
        for name, error in errors.items():
            print(f"  {name:32} {error:.5f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    if arguments.sheet:
        draw(images[max(images)], arguments.sheet)


def draw(outputs: dict[str, Tensor], path: Path) -> None:
    """Write the center of the frame, and an enlarged part of it, side by side."""
    from nystra.runtime.images.sheet import comparison_sheet

    cells = []
    for name in ("frame A", next(n for n in outputs if n.startswith("full")), "PSAL 3",
                 "PSAL 3 aggregated"):  # fmt: skip
        image = outputs[name][0].clamp(0, 1).permute(1, 2, 0).numpy()
        side = image.shape[0]
        part = image[side // 2 - 64 : side // 2 + 64, side // 2 - 64 : side // 2 + 64]
        cells.append((name, np.kron(part, np.ones((2, 2, 1), np.float32))))
    comparison_sheet([cells], path)


if __name__ == "__main__":
    main()
