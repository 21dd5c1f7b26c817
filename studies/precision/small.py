"""Small networks with random weights, written as checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from nystra.models.colorization.network import Colorization
from nystra.models.contextual_attention.network import InpaintingGenerator
from nystra.models.csnln.network import CSNLN
from nystra.models.rvrt.network import RVRT

RVRT_HYPER: dict[str, Any] = {
    "embed_dim": 8,
    "num_blocks": [1, 1, 1],
    "depths": [2, 2, 2],
    "num_heads": 2,
    "deformable_groups": 4,
    "attention_heads": 4,
    "window_size": 4,
}
PATCH_NETWORKS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "csnln2": (lambda: CSNLN(scale=2, n_feats=4, depth=1), {}),
    "inpainting": (lambda: InpaintingGenerator(ngf=2), {}),
    "colorization": (lambda: Colorization(channels=4, patch=5), {"patch": 5}),
}
"""Name -> how the network is built, and what its weights do not tell."""


def save_rvrt(path: Path, **hyper: Any) -> Path:
    """Write an RVRT; ``hyper`` takes precedence over `RVRT_HYPER`."""
    torch.manual_seed(0)
    save_file(RVRT(**{**RVRT_HYPER, **hyper}).state_dict(), path)
    return path


def save_patch_network(name: str, path: Path) -> Path:
    """Write a network with patch attention and weights large enough for it to matter."""
    build, hyper = PATCH_NETWORKS[name]
    torch.manual_seed(5)
    network = build()
    with torch.no_grad():
        for key, parameter in network.named_parameters():
            if parameter.dim() == 4 and "_mean" not in key:
                parameter *= 2.0
    save_file(network.state_dict(), path, {"nystra": json.dumps(hyper)})
    return path
