"""Time NystraPatchMatch on the CPU against exhaustive search by blocked matrix products in torch.

On a quiet machine, with the library built::

    python -m studies.psal.patch_match            # about ten minutes on two cores
    python -m studies.psal.patch_match --quick    # small maps, fewer rounds

Both search maps of 16 channels for the 3 nearest patches of 7 x 7 by l2, the operator in 5
iterations. The maps are random numbers, or fixed random 3 x 3 filters of two ``--images``. The
exhaustive search is timed on a share of the queries and scaled; the two take turns within a round.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from nystra.plugins.library import isa
from studies.psal.search import kernel_search

CHANNELS, PATCH, NEIGHBORS, ITERATIONS = 16, 7, 3, 5
BARS = {256: 20.0, 512: 60.0}
"""Side of the maps: how many times faster than exhaustive search the operator must be."""

GROWTH = 1.3
"""The time from 256 to 1024 may grow by this times n log n."""

Maps = tuple[np.ndarray, np.ndarray]


def features(side: int, images: tuple[Path, ...]) -> Maps:
    """Return query and key (1, 16, side, side): filtered images, otherwise noise."""
    rng = np.random.default_rng(0)
    if not images:
        shape = (1, CHANNELS, side, side)
        first, second = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
        return first, second
    filters = rng.standard_normal((CHANNELS, 3, 3, 3), dtype=np.float32)
    maps = []
    for restored in images:
        image = Image.open(restored).convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
        values = np.asarray(image, dtype=np.float32) / 255
        padded = np.pad(values, ((1, 1), (1, 1), (0, 0)), mode="edge")
        views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
        maps.append(np.ascontiguousarray(np.einsum("hwcij,dcij->dhw", views, filters))[None])
    return maps[0], maps[1]


def search(query: np.ndarray, key: np.ndarray) -> torch.Tensor:
    """Return the scores (1, 3, H, W) that the operator finds."""
    everywhere, none = torch.ones(1, 1, 1, 1), torch.full((1, 1, 1, 1), -1, dtype=torch.int32)
    score: torch.Tensor = kernel_search(
        torch.from_numpy(query),
        torch.from_numpy(key),
        everywhere,
        everywhere,
        none,
        patch_size=PATCH,
        iterations=ITERATIONS,
        neighbors=NEIGHBORS,
        metric=0,
        seed=0,
    )[1]
    return score


def _patches(image: np.ndarray, part: slice = slice(None)) -> torch.Tensor:
    """Return the patches (rows * W, C p p) of rows of an image (1, C, H, W), borders repeated."""
    padded = torch.nn.functional.pad(torch.from_numpy(image), (PATCH // 2,) * 4, mode="replicate")
    rows = range(*part.indices(image.shape[2]))
    band = padded[:, :, rows.start : rows.stop + PATCH - 1]
    return torch.nn.functional.unfold(band, PATCH)[0].T.contiguous()


def exhaustive(query: np.ndarray, key: np.ndarray, rows: slice) -> torch.Tensor:
    """Return the scores (n, 3) of the nearest patches of some rows of queries, block by block."""
    queries, side = _patches(query, rows), key.shape[2]
    band = max(1, 16384 // key.shape[3])  # rows of keys at a time: all patches would fill memory
    best: list[torch.Tensor] = []
    for first in range(0, side, band):
        keys = _patches(key, slice(first, first + band))
        norms = (keys * keys).sum(dim=1)
        scores = []
        for part in queries.split(2048):
            products = torch.addmm(norms, part, keys.T, beta=-1, alpha=2)
            scores.append(products.topk(NEIGHBORS, dim=1).values)
        best.append(torch.cat(scores))
    nearest = torch.cat(best, dim=1).topk(NEIGHBORS, dim=1).values
    return nearest - (queries * queries).sum(dim=1, keepdim=True)


def seconds(work: Callable[[], object]) -> float:
    """Return the duration of ``work``."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(
    sides: list[int],
    images: tuple[Path, ...],
    rounds: int,
    share: int,
) -> None:
    """Print the operator against exhaustive search on one ``share``-th of the rows."""
    print(
        "side   operator s   exhaustive s    ratio    bar   score (operator, exhaustive, same rows)"
    )
    for side in sides:
        query, key = features(side, images)
        rows = slice(side // 2, side // 2 + side // share)
        times: list[tuple[float, float]] = []
        for _ in range(rounds):
            fast = seconds(lambda query=query, key=key: search(query, key))
            slow = seconds(lambda query=query, key=key, rows=rows: exhaustive(query, key, rows))
            times.append((fast, slow * side / (rows.stop - rows.start)))
        fast, slow = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(b / a for a, b in times)
        score = search(query, key)[:, :, rows].mean()
        best = exhaustive(query, key, rows).mean()
        bar = f"{BARS[side]:6.0f}" if side in BARS else "     -"
        print(f"{side:4} {fast:12.3f} {slow:14.1f} {ratio:8.1f} {bar}   {score:.4f} {best:.4f}")


def growth(
    sides: list[int],
    images: tuple[Path, ...],
    rounds: int,
) -> None:
    """Print the growth of the time with n pixels, relative to n log n."""
    pairs = [features(side, images) for side in sides]
    times = [
        [seconds(lambda pair=pair: search(*pair)) for pair in pairs] for _ in range(rounds)
    ]  # sides take turns
    base = sides[0] ** 2 * math.log(sides[0] ** 2)
    print(f"side       seconds   time / time at {sides[0]}   over n log n (bar {GROWTH} at 1024)")
    for i, side in enumerate(sides):
        ratio = statistics.median(each[i] / each[0] for each in times)
        over = ratio / (side**2 * math.log(side**2) / base)
        middle = statistics.median(each[i] for each in times)
        print(f"{side:4} {middle:13.3f} {ratio:16.2f} {over:15.2f}")


def candidates(side: int) -> int:
    """Return the largest number of candidates per pixel, including the starts."""
    levels = side.bit_length()
    return NEIGHBORS + ITERATIONS * (4 * 4 * NEIGHBORS + levels)


def main() -> None:
    """Print the tables of speed, growth and candidates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=Path, nargs=2, metavar="FILE", default=())
    parser.add_argument("--quick", action="store_true", help="sides 64 and 128, small shares")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    images = tuple(arguments.images)
    sides, sizes = (
        ([64, 128], [64, 128, 256]) if arguments.quick else ([256, 512], [256, 512, 1024])
    )
    source = " and ".join(map(str, images)) or "noise"
    print(
        f"instruction set {isa()}, {arguments.threads} threads, {source}: {CHANNELS} channels, "
        f"patch {PATCH}, k {NEIGHBORS}, {ITERATIONS} iterations"
    )
    search(*features(32, ()))
    compare(sides, images, arguments.rounds, 16)
    growth(sizes, images, arguments.rounds)
    for side in sizes:
        print(f"{side}: at most {candidates(side)} candidates a pixel, of {side * side} keys")


if __name__ == "__main__":
    main()
