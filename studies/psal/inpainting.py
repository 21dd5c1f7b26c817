"""Fill holes in a large photograph without tiles, and print memory and time.

Section 4.5 of the PSAL paper on the CPU. With the library built::

    python -m studies.psal.inpainting PHOTOGRAPH --height 2700 --width 3300 \
        --checkpoint CHECKPOINT.safetensors --output build/filled.png --crop build/crop.png

Without ``--checkpoint`` the weights are random (the published generator, ngf 32): memory and time
are then those of a trained network, but not the image. The network is exported with ``--attn``
(``--paper`` takes psal in section 4.4's form: patch 7, no downsampling, the central pixel), and
runs as in ``nystra run``, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image


def export(checkpoint: Path | None, attention: str, paper: bool, folder: Path) -> Path:
    """Write the network with an attention to a file in a folder; return its path."""
    from nystra.cli.main import main as nystra

    if checkpoint is None:
        import torch
        from safetensors.torch import save_file

        from nystra.models.contextual_attention.network import InpaintingGenerator

        torch.manual_seed(0)
        checkpoint = folder / "random.safetensors"
        save_file(InpaintingGenerator().state_dict(), checkpoint)
    model = folder / "inpainting.onnx"
    command = ["export", str(checkpoint), "-o", str(model), "--attn", attention]
    command += ["--no-speed", "--quiet", *(("--patch-size", "7", "--full-size") if paper else ())]
    if nystra(command) != 0:
        raise SystemExit("the export failed")
    return model


def holes(height: int, width: int, side: int) -> np.ndarray:
    """Return a mask (H, W), 1 in twelve squares; in small images 1/8 of the side."""
    side = min(side, min(height, width) // 8)
    mask = np.zeros((height, width), np.float32)
    for row in (0.2, 0.5, 0.8):
        for column in (0.15, 0.4, 0.65, 0.9):
            top, left = int(row * height) - side // 2, int(column * width) - side // 2
            mask[top : top + side, left : left + side] = 1.0
    return mask


def resident(field: str) -> int:
    """Return a field of this process's status in bytes."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.partition(f"{field}:")[2].split()[0])


def work(arguments: argparse.Namespace) -> None:
    """Run the model in this process and print bytes and seconds."""
    from nystra.runtime.session import Session
    from nystra.runtime.tasks.restoration.restorer import restorer_for

    small = Image.open(arguments.photograph).convert("RGB")
    size = (arguments.width, arguments.height)
    image = np.asarray(small.resize(size, Image.Resampling.BICUBIC), np.float32) / 255
    mask = holes(arguments.height, arguments.width, arguments.hole)
    restorer = restorer_for(Session(arguments.model, threads=arguments.threads))
    before, start = resident("VmRSS"), time.perf_counter()
    filled, _ = restorer(image, auxiliary={"mask": mask[:, :, None]})
    seconds, peak = time.perf_counter() - start, resident("VmHWM")
    outside = float(np.abs(filled - image)[mask == 0].max())
    print(
        json.dumps({"peak": peak, "before": before, "seconds": seconds, "outside": outside}),
        flush=True,
    )
    done = Image.fromarray(np.round(np.clip(filled, 0, 1) * 255).astype(np.uint8))
    if arguments.output:
        done.save(arguments.output)
    if arguments.crop:
        crop(done, image, mask, 3 * arguments.hole, arguments.crop)


def crop(done: Image.Image, image: np.ndarray, mask: np.ndarray, side: int, path: Path) -> None:
    """Write the surroundings of two holes, before and after, ``side`` pixels wide and high."""
    from nystra.runtime.images.sheet import comparison_sheet

    height, width = mask.shape
    columns = []
    for row, column in ((0.5, 0.4), (0.8, 0.65)):
        top, left = int(row * height) - side // 2, int(column * width) - side // 2
        rows, across = slice(top, top + side), slice(left, left + side)
        before = np.where(mask[rows, across, None] > 0, 0.5, image[rows, across])
        after = np.asarray(done, np.float32)[rows, across] / 255
        columns += [("hole", before), ("filled", after)]
    comparison_sheet([columns], path)


def main() -> None:
    """Export, run, report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photograph", type=Path)
    parser.add_argument("--height", type=int, default=2700)
    parser.add_argument("--width", type=int, default=3300)
    parser.add_argument("--hole", type=int, default=128, help="side in pixels, the paper's: 128")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--attn", choices=("psal", "full"), default="psal")
    parser.add_argument("--paper", action="store_true", help="patch 7, no downsampling, one pixel")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="the filled image")
    parser.add_argument("--crop", type=Path, help="the surroundings of two holes")
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.model:
        work(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        model = export(arguments.checkpoint, arguments.attn, arguments.paper, Path(folder))
        command = [
            sys.executable,
            "-m",
            "studies.psal.inpainting",
            *sys.argv[1:],
            "--model",
            str(model),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    usage = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{arguments.height}x{arguments.width}, {arguments.attn}, "
        f"{arguments.threads} threads: peak {usage['peak'] / 1e9:.2f} GB of the whole process, "
        f"{(usage['peak'] - usage['before']) / 1e9:.2f} GB above it before the run, "
        f"{usage['seconds']:.1f} s, outside the holes the image changes by {usage['outside']:.0e}"
    )


if __name__ == "__main__":
    main()
