"""Exports of RVRT at its published sizes: nodes, seconds of processor time, peak memory, accuracy.

    OMP_NUM_THREADS=1 python -m studies.rvrt.export                   # 001, full
    OMP_NUM_THREADS=1 python -m studies.rvrt.export --network 006 --attn nystra
    python -m studies.rvrt.export --network 001 --save rvrt_001.safetensors
    python -m studies.rvrt.export --attn nystra --frames 4 --keep FOLDER

Each export is a process of its own. Weights come from a seed. ``--keep`` leaves the files there,
for ``studies.performance.opening`` and ``nystra build --dry-run``.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.models.rvrt.network import RVRT
from studies.performance.export_time import Stopwatch

PUBLISHED: dict[str, dict[str, Any]] = {
    "001": {},
    "005": {"upscale": 1, "embed_dim": 192, "inputconv_groups": (1, 3, 3, 3, 3, 3)},
    "006": {
        "upscale": 1,
        "in_chans": 4,
        "embed_dim": 192,
        "inputconv_groups": (1, 3, 4, 6, 8, 4),
    },
}
"""What differs from the defaults: super-resolution, deblurring, denoising."""


def save_network(path: Path, name: str) -> None:
    """Write a checkpoint of the published size with weights from a seed."""
    torch.manual_seed(0)
    save_file(RVRT(**PUBLISHED[name]).state_dict(), path)


def row(
    name: str, attention: str, frames: int, opset: int, keep: Path | None, window: int | None
) -> str:
    """Export, and return its time and memory as a row of a table."""
    hyper = {"frames": frames} | ({} if window is None else {"window_size": window})
    options = ExportOptions(Plan(mechanism(attention)), hyper, opset=opset, speed=False)
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder, f"rvrt_{name}.safetensors")
        save_network(checkpoint, name)
        watch = Stopwatch()
        result = export_model(checkpoint, keep or folder, options, watch)
        watch("end")
        size = result.model.stat().st_size / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sizes = result.validation.reports.values()
    apart = max(size["max_abs"] for backend in sizes for size in backend["sizes"])
    return (
        f"| {name} | {attention} | {frames} | {result.nodes} | {size:.1f} | "
        f"{time.process_time() - begun:.0f} | {peak:.0f} | {apart:.1e} |"
    )


def main() -> None:
    """Export every number of frames in its own process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--network", choices=PUBLISHED, default="001")
    parser.add_argument("--attn", default="full")
    parser.add_argument("--frames", type=int, nargs="+", default=[2, 4, 6, 8])
    parser.add_argument("--window", type=int, help="side of the windows (8, as published)")
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--save", type=Path, help="write the checkpoint and export nothing")
    parser.add_argument("--keep", type=Path, help="an existing folder for the files")
    args = parser.parse_args()
    if args.save:
        save_network(args.save, args.network)
    elif len(args.frames) == 1:
        how = args.network, args.attn, args.frames[0], args.opset, args.keep, args.window
        print(row(*how), flush=True)
    else:
        print("| RVRT | attention | frames | nodes | MB | processor s | peak MiB | difference |")
        for frames in args.frames:
            command = [sys.executable, "-m", "studies.rvrt.export", *sys.argv[1:]]
            subprocess.run([*command, "--frames", str(frames)], check=True)


if __name__ == "__main__":
    main()
