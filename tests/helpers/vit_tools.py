"""Vision transformers for tests: the golden ones, and small ones."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from golden_cases import golden
from nystra.models.loading import LoadedModel, load
from nystra.models.vit.network import ViT

GOLDEN: dict[str, dict[str, Any]] = {
    "standard": {},
    "faster": {"num_heads": 4},
    "linformer": {"num_heads": 4},
    "linformer_perhead": {},
    "performer": {},
    "nystromformer": {"num_landmarks": 16},
    "nystromformer_noconv": {"num_heads": 4, "attention": "nystromformer", "num_landmarks": 13},
}
"""The golden networks, with what their tensors do not tell."""

TINY: dict[str, Any] = {
    "image_size": (8, 12),
    "patch_size": 2,
    "hidden_size": 8,
    "intermediate_size": 16,
    "depth": 2,
    "num_heads": 2,
    "num_classes": 5,
}
"""A network of 4x6 patches."""

TOLD: dict[str, Any] = {"num_heads": 2, "image_size": [8, 12]}
"""What its tensors do not tell."""

SMALL: dict[str, dict[str, Any]] = {
    "nystra": {"landmarks": (2, 3)},
    "nystromformer": {"landmarks": (2, 3)},
    "cluster": {"clusters": (2, 2), "block": 2},
    "psal": {"neighbors": 4},
    "performer": {"features": 16},
}
"""Mechanisms that need no training, at the size of a small network."""


def load_golden(name: str, folder: Path) -> LoadedModel:
    """Return the golden network of that name, loaded from a file of its published keys."""
    weights = golden(f"vit_cifar_{name}").weights()
    path = folder / f"{name}.safetensors"
    save_file({key: torch.from_numpy(value).contiguous() for key, value in weights.items()}, path)
    return load(path, **GOLDEN[name])


def tiny_checkpoint(folder: Path, name: str = "tiny", **hyper: Any) -> Path:
    """Return a checkpoint of a small network with widely different logits."""
    torch.manual_seed(0)
    network = ViT(**TINY | hyper)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    path = folder / f"{name}.safetensors"
    save_file(network.state_dict(), path)
    return path
