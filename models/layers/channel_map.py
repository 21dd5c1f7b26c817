"""Layers of networks whose map has the layout of convolutions, (B, C, H, W)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .padding import mirror
from .swin import to_image, to_map


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each pixel; keeps (B, dim, H, W)."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Return x, normalized."""
        return to_image(super().forward(to_map(x)))


class ConvMlp(nn.Module):
    """Two 1x1 convolutions with a depthwise one between; keeps (B, dim, H, W)."""

    def __init__(self, dim: int, hidden: int, last: str) -> None:
        """Build the layers; ``last`` is the published key of the last one."""
        super().__init__()
        self.last = last
        self.proj = nn.Conv2d(dim, hidden, 1)
        self.dwc = nn.Conv2d(hidden, hidden, 3, 1, 1, groups=hidden)
        self.add_module(last, nn.Conv2d(hidden, dim, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers' output for x."""
        y = F.gelu(self.proj(x))
        y = y + F.gelu(self.dwc(y))
        out: Tensor = self.get_submodule(self.last)(y)
        return out


class MirroredConv2d(nn.Conv2d):
    """A convolution that keeps the size of its map, mirrored at the border; any H and W >= 1."""

    def __init__(self, inputs: int, outputs: int, side: int, groups: int = 1) -> None:
        """Build the convolution with a filter of ``side`` x ``side``, which is odd."""
        super().__init__(inputs, outputs, side, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution of x."""
        margin = self.kernel_size[0] // 2
        return super().forward(mirror(x, (margin, margin)))


def hidden_width(dim: int, ratio: float) -> int:
    """Return ``int(dim * ratio)`` as in the published networks, without rounding errors."""
    return int(dim * ratio + 1e-6)
