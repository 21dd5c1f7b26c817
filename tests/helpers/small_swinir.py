"""A tiny SwinIR: its hyper-parameters and its state dict."""

from typing import Any

import torch

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
