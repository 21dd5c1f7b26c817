"""Export networks with large windows at their published sizes: seconds and memory.

The weights are drawn from a seed. Every export is a `nystra-export` of its own, with one thread;
rows that the JSON file has are not measured again::

    python -m studies.performance.published_sizes --rows rows.json
    python -m studies.performance.published_sizes --rows rows.json --only esc sst_light
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from nystra.core.json_text import stable_json
from nystra.core.metadata import ModelMetadata
from nystra.models.dehazeformer.network import DehazeFormer
from nystra.models.esc.network import ESC, ESCFP, ESCRIB
from nystra.models.esc.real import ESCReal
from nystra.models.sst.network import SST
from nystra.runtime.model.onnx_header import read_onnx_header

ATTENTION = ("full", "cluster")
COLUMNS = ("network", "attention", "seconds", "busy", "peak_mb", "tiles")
"""Of a row: seconds by the clock and of processor time, largest memory, and PSNR of tiles."""


@dataclass(frozen=True)
class Network:
    """A network of a published size.

    Attributes:
        build: Returns it with some weights.
        told: What no tensor of its checkpoint says, as the command line takes it.
    """

    build: Callable[[], nn.Module]
    told: tuple[str, ...] = ()


def _sst(windows: tuple[int, ...], **sizes: Any) -> Network:
    told = f"window_sizes={json.dumps(windows, separators=(',', ':'))}"
    return Network(partial(SST, window_sizes=windows, **sizes), ("--set", told))


def _dehazeformer(**sizes: Any) -> Network:
    return Network(partial(DehazeFormer, **sizes), ("--window", "8"))


_LIGHT, _LARGE = (8, 16, 32, 16, 32, 64), (16, 32, 64, 16, 32, 64)
_SHARES = (0.25, 0.5, 0.75, 0, 0)
_BASE = {
    "num_heads": (6,) * 6,
    "ranks": (18,) * 3 + (34,) * 3,
    "upsampler_type": "pixelshuffle",
    "exp_ratio": 1.25,
}
_WIDE = {
    "num_heads": (6,) * 6,
    "ranks": (16,) * 3 + (32,) * 3,
    "upsampler_type": "pixelshuffle",
    "intermediate_dim": 96,
    "exp_ratio": 2,
}
NETWORKS: Mapping[str, Network] = {
    "esc": Network(ESC),
    "esc_light": Network(partial(ESC, n_blocks=3)),
    "esc_fp": Network(ESCFP),
    "esc_real": Network(ESCReal),
    "esc_rib": Network(partial(ESCRIB, gate_type="DWC"), ("--window", "64")),
    "sst_light": _sst(_LIGHT),
    "sst_base": _sst(_LARGE, dim=180, n_blocks=6, **_BASE),
    "sst_large": _sst(_LARGE, dim=192, n_blocks=8, **_WIDE),
    "dehazeformer_t": _dehazeformer(depths=(4, 4, 4, 2, 2), attn_ratio=(0, 0.5, 1, 0, 0)),
    "dehazeformer_b": _dehazeformer(depths=(16, 16, 16, 8, 8), attn_ratio=_SHARES),
    "dehazeformer_l": _dehazeformer(
        embed_dims=(48, 96, 192, 96, 48),
        depths=(16, 16, 16, 12, 12),
        attn_ratio=_SHARES,
        conv_type=("Conv",) * 5,
    ),
}


def save(name: str, path: Path) -> None:
    """Write the checkpoint of a network."""
    torch.manual_seed(0)
    state = NETWORKS[name].build().state_dict()
    save_file({key: tensor.contiguous() for key, tensor in state.items()}, path)


def export(name: str, attention: str, folder: Path) -> dict[str, Any]:
    """Export a network in its own process and return the row of its time and memory."""
    checkpoint, model = folder / f"{name}.safetensors", folder / "m.onnx"
    save(name, checkpoint)
    tool = Path(sys.executable).with_name("nystra-export")
    command = [str(tool), str(checkpoint), "--attn", attention]
    command += [*NETWORKS[name].told, "--output", str(model), "--quiet"]
    begun = time.perf_counter()
    child = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}")
    return {
        "network": name,
        "attention": attention,
        "seconds": round(time.perf_counter() - begun, 1),
        "busy": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": usage.ru_maxrss * 1024 // 10**6,
        "tiles": ModelMetadata.read(read_onnx_header(model).metadata).tile_psnr,
    }


def main() -> None:
    """Export what is missing in the file of rows, and print all rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=Path, required=True, help="JSON file of what is measured")
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--attn", nargs="+", choices=ATTENTION, default=ATTENTION)
    options = parser.parse_args()
    rows = json.loads(options.rows.read_bytes()) if options.rows.exists() else []
    done = {(row["network"], row["attention"]) for row in rows}
    for name in options.only:
        for attention in options.attn:
            if (name, attention) not in done:
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(export(name, attention, Path(folder)))
                options.rows.write_bytes(stable_json(rows))
    for row in rows:
        print("| " + " | ".join(str(row[name]) for name in COLUMNS) + " |")


if __name__ == "__main__":
    main()
