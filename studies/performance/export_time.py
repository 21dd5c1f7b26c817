"""Time an export step by step: SwinIR-M (classical x2) with weights from a seed.

    OMP_NUM_THREADS=2 python -m studies.performance.export_time --attn nystra --window 32
    OMP_NUM_THREADS=2 python -m studies.performance.export_time --attn full
    OMP_NUM_THREADS=2 python -m studies.performance.export_time --attn auto --built 16 --no-speed \\
        --folder build/auto

``--folder`` stores the checkpoint and its measurements, for ``studies.quality.auto_plans``.
A smaller network takes less time: ``--width 60 --depths 2 2``. Next to the seconds the processor
time of this process is printed, which is more reliable on a busy machine (with one thread: threads
that wait for each other count as busy).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.export.auto_options import AutoOptions
from nystra.models.swinir.network import SwinIR

HEAD = 30
"""Channels of a head, as published."""


class Stopwatch:
    """Prints the seconds of each step when the next one begins."""

    def __init__(self) -> None:
        """Start before the first step."""
        self._step, self._begun, self._busy = "start", time.perf_counter(), time.process_time()

    def __call__(self, step: str) -> None:
        """End the current step."""
        now, busy = time.perf_counter(), time.process_time()
        spent = f"{now - self._begun:7.1f} s  {busy - self._busy:7.1f} s busy"
        print(f"{spent}  {self._step}", flush=True)
        self._step, self._begun, self._busy = step, now, busy


def save_network(path: Path, width: int, depths: list[int], window: int) -> None:
    """Write the checkpoint."""
    torch.manual_seed(0)
    network = SwinIR(
        upscale=2,
        img_size=64,
        window_size=window,
        embed_dim=width,
        depths=depths,
        num_heads=[width // HEAD] * len(depths),
        upsampler="pixelshuffle",
    )
    save_file({key: value.clone() for key, value in network.state_dict().items()}, path)


def main() -> None:
    """Export and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attn", default="nystra")
    parser.add_argument("--built", type=int, default=8, help="window of the network (8)")
    parser.add_argument("--window", type=int, help="another one to export it at")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--width", type=int, default=6 * HEAD, help="of the network (180)")
    parser.add_argument("--depths", type=int, nargs="+", default=[6] * 6)
    parser.add_argument("--folder", type=Path, help="keeps what is written; default: nothing does")
    args = parser.parse_args()
    if args.width < HEAD or args.width % HEAD:
        parser.error(f"--width is {args.width}; expected a multiple of {HEAD}")
    options = ExportOptions(
        AutoOptions() if args.attn == "auto" else Plan(mechanism(args.attn)),
        hyper={} if args.window is None else {"window_size": args.window},
        precision=args.precision,
        speed=not args.no_speed,
        overwrite=True,
    )
    with tempfile.TemporaryDirectory() as passing:
        folder = args.folder or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = folder / f"swinir_m_w{args.built}.safetensors"
        save_network(checkpoint, args.width, args.depths, args.built)
        watch, begun = Stopwatch(), time.perf_counter()
        result = export_model(checkpoint, folder, options, watch)
        watch("end")
        print(f"{time.perf_counter() - begun:7.1f} s  in all, {torch.get_num_threads()} threads")
    fidelity, speed = result.fidelity, result.speed
    print(f"against full {fidelity.mean:.2f}, against trained {fidelity.trained_mean}")
    if result.proposal.summary:
        print(result.proposal.summary, result.proposal.figures)
    print(f"against PyTorch {result.validation.figures}, speed {speed}")


if __name__ == "__main__":
    main()
