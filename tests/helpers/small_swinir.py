"""A tiny SwinIR: its hyper-parameters and its state dict."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from nystra.models.swinir.network import SwinIR


def tiny(**more: Any) -> dict[str, Any]:
    return {
        "upscale": 2,
        "window_size": 4,
        "depths": [2],
        "embed_dim": 8,
        "num_heads": [2],
        "upsampler": "pixelshuffledirect",
    } | more


def state_of(**more: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {key: value.clone() for key, value in SwinIR(**tiny(**more)).state_dict().items()}


def four_sites(folder: Path) -> Path:
    """A checkpoint in the folder whose network has four windows of 8x8 in two groups."""
    path = folder / "tiny.safetensors"
    save_file(state_of(window_size=8, depths=[2, 2], num_heads=[2, 2]), path)
    return path
