"""RVRT of the published size on a CPU, and sampling by gathers compared with GridSample.

``python -m studies.rvrt.costs``: seconds of processor time (the best available measure on a busy
machine) and peak memory of one clip, each in a process of its own, with the PyTorch network on the
operators' kernels. Weights are random. ``--samples`` times the gathers.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import find_sites, neutral, swap
from nystra.models.rvrt.deform import deformable_attention
from nystra.models.rvrt.network import RVRT
from nystra.models.rvrt.sampling import flow_warp

FORMS = {
    "full, window 8, as published": {},
    "nystra 4x4, 6 iterations, window 8": {"landmarks": (4, 4)},
    "full, window 64": {"window_size": 64},
    "nystra 4x8, 6 iterations, window 64": {"window_size": 64, "landmarks": (4, 8)},
}


def measure(name: str, frames: int, height: int, width: int) -> tuple[float, float, float]:
    """Return processor seconds, seconds, and the peak memory in MiB for one video."""
    form = dict(FORMS[name])
    landmarks = form.pop("landmarks", None)
    trained = "window_size" not in form
    torch.manual_seed(0)
    network = RVRT(position_bias=trained, mask=trained, **form).eval()
    planned = neutral(network)
    if landmarks:
        chosen = mechanism("nystra", landmarks=landmarks)
        planned = {site.path: chosen for site in find_sites(network)}
    network = swap(network, planned, "operator")
    clip = torch.rand(1, frames, 3, height, width)
    with torch.inference_mode():
        network(clip[:, :2, :, :32, :32])  # kernels are loaded and chosen
        start, clock = time.process_time(), time.perf_counter()
        network(clip)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return time.process_time() - start, time.perf_counter() - clock, peak


def grid_warp(image: Tensor, flow: Tensor) -> Tensor:
    """The result of `flow_warp`, by GridSample."""
    height, width = image.shape[2:]
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    x = 2 * (columns + flow[:, 0]) / (width - 1) - 1
    y = 2 * (rows + flow[:, 1]) / (height - 1) - 1
    return F.grid_sample(image, torch.stack((x, y), -1), align_corners=True)


def grid_attention(
    q: Tensor, k: Tensor, v: Tensor, offset: Tensor, *, heads: int, groups: int
) -> Tensor:
    """The result of `deformable_attention` for an even number of groups, by GridSample."""
    batch, clip, channels = q.shape[0], q.shape[1], q.shape[-1]
    moved = offset.unflatten(2, (clip, groups, 9, 2))
    kv = torch.cat((k, v), -1).permute(0, 1, 4, 2, 3).unflatten(2, (groups, -1))
    query = (q * (channels // heads) ** -0.5).permute(0, 1, 4, 2, 3)
    query = query.unflatten(2, (heads, -1))
    logits, values = [], []
    source = (torch.arange(clip)[:, None] + torch.arange(clip)) % clip
    for slot in range(clip):
        maps = kv[:, source[:, slot]].flatten(0, 2)
        for tap in range(9):
            shift = torch.tensor([tap // 3 - 1, tap % 3 - 1]).view(2, 1, 1)
            flow = (moved[:, :, slot, :, tap] + shift).flip(3).flatten(0, 2)
            warped = grid_warp(maps, flow).unflatten(0, (batch, clip, groups)).flatten(2, 3)
            keys, sampled = warped.chunk(2, 2)
            logits.append((query * keys.unflatten(2, (heads, -1))).sum(3))
            values.append(sampled.unflatten(2, (heads, -1)))
    weights = torch.stack(logits, -1).softmax(-1)
    out = sum(
        weight.unsqueeze(3) * value
        for weight, value in zip(weights.unbind(-1), values, strict=True)
    )
    assert isinstance(out, Tensor)
    return out.flatten(2, 3).permute(0, 1, 3, 4, 2)


def best(compute: Callable[[], Tensor], runs: int = 3) -> float:
    """Return the shortest processor time of some runs in milliseconds."""
    seconds = []
    for _ in range(runs):
        start = time.process_time()
        compute()
        seconds.append(time.process_time() - start)
    return 1e3 * min(seconds)


def samples() -> None:
    """Time the gathers of RVRT and GridSample in PyTorch, at the published widths."""
    torch.manual_seed(0)
    with torch.inference_mode():
        for channels, side in ((3, 128), (144, 64)):
            image, flow = torch.rand(4, channels, side, side), 5 * torch.randn(4, 2, side, side)
            apart = (flow_warp(image, flow) - grid_warp(image, flow)).abs().max()
            ours, grid = (best(partial(warp, image, flow)) for warp in (flow_warp, grid_warp))
            print(
                f"warp {channels} channels, 4x{side}x{side}: {ours:.1f} ms by gathers, "
                f"{grid:.1f} by GridSample (apart {apart:.1e})"
            )
        q, k, v = torch.randn(3, 1, 2, 64, 64, 288)
        offset = 5 * torch.randn(1, 2, 2 * 12 * 9 * 2, 64, 64)
        arguments = {"heads": 12, "groups": 12}
        first = deformable_attention(q, k, v, offset, **arguments)
        apart = (first - grid_attention(q, k, v, offset, **arguments)).abs().max()
        ours = best(lambda: deformable_attention(q, k, v, offset, **arguments))
        grid = best(lambda: grid_attention(q, k, v, offset, **arguments))
        print(
            f"deformable attention, a clip of 64x64: {ours:.0f} ms by gathers, {grid:.0f} by "
            f"GridSample (apart {apart:.1e})"
        )


def main() -> None:
    """Measure every mechanism in its own process, or the gathers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--size", default="64x64")
    parser.add_argument("--samples", action="store_true")
    parser.add_argument("--form", choices=FORMS)
    args = parser.parse_args()
    height, width = map(int, args.size.split("x"))
    if args.samples:
        samples()
    elif args.form:
        busy, clock, peak = measure(args.form, args.frames, height, width)
        print(
            f"| {args.form} | {args.frames}x{height}x{width} | {busy:.1f} | {clock:.1f} | "
            f"{peak:.0f} |",
            flush=True,
        )
    else:
        print("| RVRT 001 | clip | processor s | clock s | peak MiB |\n|---|---|---|---|---|")
        for form in FORMS:
            command = [sys.executable, "-m", "studies.rvrt.costs", *sys.argv[1:], "--form", form]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
