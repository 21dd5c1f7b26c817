"""Reconstruct a frame of a video from another: tables 2 and 3 of the PSAL paper.

With the library built::

    python -m studies.psal.reconstruction A.png B.png --sheet build/reconstruction.png

Queries are the 7x7 patches of frame A, keys those of frame B, values the pixels of B, the metric
l2 on pixels in 0..1 (the competitors: as ``competitors`` says). Of more than two frames, every
later one is reconstructed from every earlier one. Full attention at a stride takes every
stride-th key in both directions, as the paper does where all of them do not fit; ``exhaustive``
weighs the exact 3 nearest keys, which is what PSAL 3 approximates, and *distance* is that of the 3
matches above theirs. The window of local attention is the paper's share of the side; at 512 its
scores would be 8 GB, and it is left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from studies.psal.competitors import (
    WINDOW,
    Attention,
    full,
    linear,
    local,
    performer,
    reformer,
    tokens,
)
from studies.psal.layer import LayerOptions, matches, reconstruct
from studies.psal.published_search import published_search
from studies.psal.search import kernel_search

PATCH = 7
STRIDES = {512: 10, 256: 5, 128: 2, 64: 1}
SEARCHES = {"": kernel_search, ", search as published": published_search}
"""What is added to the name of a row -> the search."""


def read(path: Path, side: int) -> Tensor:
    """Return an image (1, 3, side, side) in 0..1, bicubic if it is smaller."""
    image = Image.open(path).convert("RGB")
    if image.size != (side, side):
        image = image.resize((side, side), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).unsqueeze(0).float() / 255


def attentions(side: int, temperature: float, exhaustive: int) -> dict[str, Attention]:
    """Return what PSAL is compared with at a size."""
    of_l2 = partial(full, temperature=temperature)
    rows: dict[str, Attention] = {
        f"full, stride {STRIDES[side]}": partial(of_l2, stride=STRIDES[side]),
        "linear": linear,
        "performer": performer,
        "reformer": reformer,
    }
    if side < 512:
        window = round(WINDOW * side / 512)
        rows["local"] = partial(local, temperature=temperature, window=window)
    if side <= exhaustive:
        rows |= {"full, stride 1": of_l2, "exhaustive 3": partial(of_l2, best=3)}
    return rows


def compare(
    a: Tensor, b: Tensor, options: argparse.Namespace
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Return what each attention makes of frame B, and the distances of the searches."""
    side = a.shape[2]
    rows = attentions(side, options.temperature, options.exhaustive)
    outputs = {name: attend(a, b, b) for name, attend in rows.items()}
    distances: dict[str, float] = {}
    for (search_name, search), seed in itertools.product(SEARCHES.items(), options.seeds):
        if search_name and side > options.exhaustive:
            continue
        layer = LayerOptions(3, PATCH, seed=seed, temperature=options.temperature)
        start = time.process_time()
        index, score = matches(a, b, layer, search=search)
        suffix = search_name + (f", seed {seed}" if seed else "")
        distances[f"seconds{suffix}"] = time.process_time() - start
        distances[f"distance{suffix}"] = -score.mean().item()
        for name, form in (("PSAL 3", "center"), ("PSAL 3 aggregated", "aggregate")):
            layer = LayerOptions(3, PATCH, temperature=options.temperature, reconstruction=form)
            outputs[name + suffix] = reconstruct(index, score, b, layer)
    if side <= options.exhaustive:
        exact = nearest(a, b)
        distances |= {
            name: value / exact - 1
            for name, value in distances.items()
            if name.startswith("distance")
        }
    return outputs, distances


def nearest(a: Tensor, b: Tensor) -> float:
    """Return the mean squared distance of the exact 3 nearest patches."""
    queries, keys = tokens(a, PATCH), tokens(b, PATCH)
    found = [
        torch.cdist(block, keys, compute_mode="donot_use_mm_for_euclid_dist").topk(3, largest=False)
        for block in queries.split(1024)
    ]
    return torch.cat([each.values.square() for each in found]).mean().item()


def main() -> None:
    """Print both tables, and draw the sheet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("frames", type=Path, nargs="+")
    parser.add_argument("--sides", type=int, nargs="+", default=list(STRIDES), choices=STRIDES)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--exhaustive", type=int, default=128, help="largest side to search whole")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sheet", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results, images = {}, {}
    for side in arguments.sides:
        pairs: list[dict[str, float]] = []
        for b_path, a_path in itertools.combinations(arguments.frames[::-1], 2):
            b, a = read(b_path, side), read(a_path, side)
            outputs, figures = compare(a, b, arguments)
            outputs["frame B itself"] = b
            errors = {name: (out - a).square().mean().item() for name, out in outputs.items()}
            pairs.append(errors | figures)
            images[side] = {"frame A": a, **outputs}
        results[side] = {name: float(np.mean([pair[name] for pair in pairs])) for name in pairs[0]}
        print(f"{side}x{side}, pairs: {len(pairs)}")
        for name, figure in results[side].items():
            print(f"  {name:48} {figure:.5f}", flush=True)
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
