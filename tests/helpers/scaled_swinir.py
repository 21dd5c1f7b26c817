"""A tiny SwinIR with some of its parameters scaled."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from nystra.models.swinir.network import SwinIR
from small_swinir import tiny


def checkpoint(folder: Path, **scaled: float) -> Path:
    """A tiny SwinIR; the parameters whose names end as given are scaled."""
    torch.manual_seed(3)
    network = SwinIR(**tiny(window_size=8, embed_dim=16))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            for ending, factor in scaled.items():
                if name.endswith(ending.replace("__", ".")):
                    parameter *= factor
    path = folder / "tiny.safetensors"
    save_file(network.state_dict(), path)
    return path
