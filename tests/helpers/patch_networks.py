"""Small networks with patch attention, and their checkpoints."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from nystra.models.colorization.network import Colorization
from nystra.models.contextual_attention.network import InpaintingGenerator
from nystra.models.csnln.network import CSNLN

BUILDERS: dict[str, Any] = {
    "csnln2": lambda: CSNLN(scale=2, n_feats=4, depth=1),
    "csnln3": lambda: CSNLN(scale=3, n_feats=4, depth=1),
    "csnln4": lambda: CSNLN(scale=4, n_feats=4, depth=1),
    "inpainting": lambda: InpaintingGenerator(ngf=2),
    "colorization": lambda: Colorization(channels=4, patch=5),
}


HYPER = {"colorization": {"patch": 5}}


def network_of(name: str) -> nn.Module:
    """Return a network with weights large enough for attention to matter."""
    torch.manual_seed(5)
    network: nn.Module = BUILDERS[name]().eval()
    with torch.no_grad():
        for key, parameter in network.named_parameters():
            if parameter.dim() == 4 and "_mean" not in key:
                parameter *= 2.0
    return network


def checkpoint(name: str, folder: Path) -> Path:
    path = folder / f"{name}.safetensors"
    metadata = {"nystra": json.dumps(HYPER.get(name, {}))}
    save_file(network_of(name).state_dict(), path, metadata)
    return path
