"""The memory estimate of ``nystra run`` for a tile, and the measured peak, at published sizes.

Takes some minutes (``tests/runtime/test_memory.py`` does the same on small
networks)::

    python -m studies.performance.tile_memory [--network swinir|csnln|inpainting] [--attn full|psal]

Weights are random. The estimate extrapolates from trial runs on small tiles, in a process of its
own; the peak is of one run of the whole tile in another. Both are in addition to the memory of the
session before.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.models.contextual_attention.network import InpaintingGenerator
from nystra.models.csnln.network import CSNLN
from nystra.models.swinir.network import SwinIR
from nystra.runtime import Session
from nystra.runtime.tasks.restoration.restorer import restorer_for
from studies.performance.peak import peak_above


def swinir() -> nn.Module:
    """Return SwinIR-M x2 as published."""
    return SwinIR(
        upscale=2, img_size=64, window_size=8, embed_dim=180, depths=[6] * 6, num_heads=[6] * 6
    )


NETWORKS = {"swinir": swinir, "csnln": lambda: CSNLN(scale=2), "inpainting": InpaintingGenerator}
SIDES = {"swinir": (256, 384), "csnln": (64, 96), "inpainting": (512, 768)}


def exported(name: str, attention: str, folder: Path) -> Path:
    """Return the file of a network of published size, weights from a seed."""
    torch.manual_seed(0)
    state = NETWORKS[name]().state_dict()
    save_file({key: value.clone() for key, value in state.items()}, folder / "w.safetensors")
    options = ExportOptions(Plan(mechanism(attention)), speed=False)
    return export_model(folder / "w.safetensors", folder / "model.onnx", options).model


def measure(model: Path, side: int, what: str) -> int:
    """Return the peak or its estimate in bytes, for one square of that side."""
    session = Session(model, threads=2)
    if what == "estimate":
        restorer = restorer_for(session)
        assert restorer.meter is not None
        law = restorer.meter.measure(restorer._trial, side * side, 8 << 30)
        assert law is not None, "the system keeps no mark of memory"
        return int(law.constant + law.bytes(side * side))
    feeds = {
        port.name: np.full((1, int(port.lengths["channels"]), side, side), 0.5, np.float32)
        for port in session.facts.inputs
    }
    return peak_above(lambda: session.run(feeds))


def main() -> None:
    """Print a line for each network and side."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--network", choices=NETWORKS, action="append")
    parser.add_argument("--attn", default="full")
    parser.add_argument("--measure", nargs=3, metavar=("MODEL", "SIDE", "WHAT"))
    args = parser.parse_args()
    if args.measure:
        model, side, what = args.measure
        print(measure(Path(model), int(side), what))
        return
    for name in args.network or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            model = exported(name, args.attn, Path(folder))
            for side in SIDES[name]:
                peak, estimate = (_child(model, side, what) for what in ("peak", "estimate"))
                print(
                    f"{name} {args.attn} {side}x{side}: peak {peak / 1e6:.0f} MB, estimate "
                    f"{estimate / 1e6:.0f} MB, {estimate / peak:.2f}",
                    flush=True,
                )


def _child(model: Path, side: int, what: str) -> int:
    module = "studies.performance.tile_memory"
    command = [sys.executable, "-m", module, "--measure", str(model), str(side), what]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
