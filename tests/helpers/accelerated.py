"""A small network with attention, and the comparison of an accelerated module with it."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Small(nn.Module):
    """Attention over windows of 8x8 pixels, with a number and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.tail = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.qkv, self.gain = nn.Linear(8, 24), 1.0
        self.register_buffer("mean", torch.full((1, 3, 1, 1), 0.4))

    def set_gain(self, gain: float) -> None:
        self.gain = gain

    def attention(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        tokens = x.view(batch, height // 8, 8, width // 8, 8, channels)
        tokens = tokens.permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, channels)
        q, k, v = self.qkv(tokens).chunk(3, -1)
        out = (q @ k.transpose(1, 2)).softmax(-1) @ v
        out = out.view(batch, height // 8, width // 8, 8, 8, channels)
        return out.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[2:]
        padded = F.pad(image - self.mean, (0, -width % 8, 0, -height % 8))
        maps = self.stem(padded)
        maps = maps + self.attention(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.tail(maps)[:, :, :height, :width] * self.gain


def image(*shape: int) -> Tensor:
    return torch.rand(shape or (1, 3, 16, 24), generator=torch.Generator().manual_seed(1))


def compare(fast: nn.Module, module: nn.Module, *args: Any, **kwargs: Any) -> float:
    """Return the largest difference; the result has the type and shape of the module's."""
    with torch.no_grad():
        expected = copy.deepcopy(module).eval()(*args, **kwargs)
        outputs = fast(*args, **kwargs)
    got = (outputs.shape, outputs.dtype, outputs.requires_grad)
    assert got == (expected.shape, expected.dtype, False)
    if not outputs.numel():
        return 0.0
    return float((outputs.float() - expected.float()).abs().max())
