# ruff: noqa: T201
"""Fill holes in a large photograph in one piece, and say what memory and time it took.

Section 4.5 of the PSAL paper on the CPU. Not a test: run it by hand, with the library built::

    python tests/benchmarks/psal_inpainting.py PHOTOGRAPH --height 2700 --width 3300 \
        --checkpoint CHECKPOINT.safetensors --output build/filled.png

Without ``--checkpoint`` the weights are random (the published generator, ngf 32): memory and time
are then those of a trained network, the picture is not. The network is exported with ``psal``
(``--paper`` takes section 4.4's form: patch 7, no downsampling, the central pixel), and runs in
onnxruntime in a process of its own.
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

HOLE = 128


def export(checkpoint: Path | None, neighbors: int, paper: bool, path: Path) -> int:
    """Write the network with psal to a file; return its number of nodes."""
    import onnx
    import torch

    from nystra.export.attention.mechanism import SiteParameters
    from nystra.export.attention.plan import Plan
    from nystra.export.attention.site import resolve, swap
    from nystra.export.graph.bodies import attach_bodies
    from nystra.export.graph.tidy import tidy
    from nystra.export.graph.trace import trace
    from nystra.models.contextual_attention import InpaintingGenerator
    from nystra.models.contextual_attention_detect import contextual_attention_facts
    from nystra.models.loading import load

    if checkpoint is None:
        torch.manual_seed(0)
        fresh = InpaintingGenerator().eval()
        facts = contextual_attention_facts(fresh, {"input_dim": 3}, "none")
        network: torch.nn.Module = fresh
    else:
        loaded = load(checkpoint)
        network, facts = loaded.network, loaded.facts
    form = {"patch_size": 7, "full_size": True} if paper else {}
    parameters = SiteParameters("psal", neighbors=neighbors, **form)  # type: ignore[arg-type]
    twin = swap(network, resolve(Plan(parameters), network), "operator")
    model = trace(twin, facts, 20)
    tidy(model, facts.scale, dynamic=True, extra=facts.extra_inputs)
    attach_bodies(model, 20)
    onnx.save(model, path)
    return len(model.graph.node)


def holes(height: int, width: int) -> np.ndarray:
    """Return a mask (H, W), 1 in squares of 128 pixels, as the paper's; 1/8 of a small picture."""
    side = min(HOLE, min(height, width) // 8)
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


def work(model: Path, photograph: Path, height: int, width: int, threads: int, out: Path) -> None:
    """Run the model in this process and print bytes and seconds."""
    import onnxruntime as ort

    from nystra.plugins.library import library_path

    small = Image.open(photograph).convert("RGB")
    picture = small.resize((width, height), Image.Resampling.BICUBIC)
    image = np.asarray(picture, np.float32).transpose(2, 0, 1)[None] / 255
    mask = holes(height, width)[None, None]
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(str(library_path()))
    # Both take memory for speed: an arena that grows by powers of two, and copies of the maps in
    # blocked layouts. At 2700x3300 that is the difference between 4 GB and 12 GB.
    options.enable_cpu_mem_arena = False
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    session = ort.InferenceSession(model, options, ["CPUExecutionProvider"])
    start = time.perf_counter()
    filled = session.run(None, {"input": image, "mask": mask})[0]
    seconds = time.perf_counter() - start
    outside = np.abs(filled - image)[np.broadcast_to(mask == 0, image.shape)].max()
    pixels = np.clip(filled[0], 0, 1).transpose(1, 2, 0)
    Image.fromarray(np.round(pixels * 255).astype(np.uint8)).save(out)
    peak = resident("VmHWM")
    print(json.dumps({"peak": peak, "seconds": seconds, "outside": float(outside)}))


def main() -> None:
    """Export, run, report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photograph", type=Path)
    parser.add_argument("--height", type=int, default=2700)
    parser.add_argument("--width", type=int, default=3300)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--neighbors", type=int, default=3)
    parser.add_argument("--paper", action="store_true", help="patch 7, no downsampling, one pixel")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("build/filled.png"))
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = (arguments.height, arguments.width)
    if arguments.model:
        work(arguments.model, arguments.photograph, *size, arguments.threads, arguments.output)
        return
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "inpainting.onnx")
        nodes = export(arguments.checkpoint, arguments.neighbors, arguments.paper, model)
        command = [sys.executable, __file__, str(arguments.photograph), "--model", str(model)]
        command += ["--height", str(size[0]), "--width", str(size[1])]
        command += ["--threads", str(arguments.threads), "--output", str(arguments.output)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{size[0]}x{size[1]}, {nodes} nodes, {arguments.threads} threads: peak "
        f"{found['peak'] / 1e9:.2f} GB of the whole process, {found['seconds']:.0f} s, outside the "
        f"holes the picture changes by {found['outside']:.0e}"
    )


if __name__ == "__main__":
    main()
