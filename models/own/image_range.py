"""Signs that a network takes images in 0..255."""

from __future__ import annotations

import torch
from torch import nn

_CHANNELS = 3
_LEAST, _LARGEST = 50.0, 200.0
"""Means of the colors of photographs are about 0.4, which is 100 of 255."""


def describe_range(module: nn.Module) -> list[str]:
    """Return a note if a network adds or subtracts mean colors in 0..255, as MeanShift of EDSR."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.numel() != _CHANNELS or not tensor.is_floating_point():
            continue
        size = tensor.detach().abs()
        if torch.all((size > _LEAST) & (size < _LARGEST)):
            text = (
                f"{name} holds mean colors in 0..255, and the network is given images in 0..1: its "
                "forward has to multiply them by 255 and divide its output by 255"
            )
            return [text]
    return []
