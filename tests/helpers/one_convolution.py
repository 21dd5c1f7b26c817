"""The network that tests of exports change in one way each."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class OneConvolution(nn.Module):
    """One convolution of an image (B, 3, H, W)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y
