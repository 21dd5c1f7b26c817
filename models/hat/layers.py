"""The parts of HAT that SwinIR does not have, on maps (B, H, W, channels)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..geometry import WindowGeometry
from ..layers.mlp import Mlp
from ..layers.swin import Block, WindowAttention, to_image, to_map
from ..layers.window_sides import position_bias_table
from ..sites import WindowSite
from .index import map_published_rows


class ChannelAttention(nn.Module):
    """Weights the channels by their means over the whole image; keeps (B, dim, H, W)."""

    def __init__(self, dim: int, squeezed: int, maximum: float) -> None:
        """Build the layers under the published keys; ``maximum`` is the largest weight."""
        super().__init__()
        self.maximum = maximum
        self.attention = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(dim, squeezed, 1),
            nn.ReLU(),
            nn.Conv2d(squeezed, dim, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return x, weighted."""
        weighed: Tensor = x * (
            self.maximum * self.attention(x)
        )  # scales weights, not a feature map
        return weighed


class ConvBlock(nn.Module):
    """Two convolutions and channel attention (``CAB``); keeps (B, dim, H, W)."""

    def __init__(
        self, dim: int, compress_ratio: int, squeeze_factor: int, conv_scale: float
    ) -> None:
        super().__init__()
        compressed = dim // compress_ratio
        self.cab = nn.Sequential(
            nn.Conv2d(dim, compressed, 3, 1, 1),
            nn.GELU(),
            nn.Conv2d(compressed, dim, 3, 1, 1),
            ChannelAttention(dim, dim // squeeze_factor, conv_scale),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers' output for x."""
        y: Tensor = self.cab(x)
        return y


class HybridBlock(Block):
    """Window attention and convolutions side by side, then an MLP (``HAB``)."""

    def __init__(
        self, dim: int, hidden: int, attention: WindowAttention, convolutions: ConvBlock
    ) -> None:
        super().__init__(dim, hidden, attention)
        self.conv_block = convolutions

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for the map x (B, H, W, dim)."""
        y = self.norm1(x)
        x = x + self.attn(y) + to_map(self.conv_block(to_image(y)))
        z: Tensor = x + self.mlp(self.norm2(x))
        return z


class OverlapBlock(WindowSite):
    """Attention to the keys in and around each window, and an MLP (``OCAB``).

    Keys outside the map are zeros: their scores are the position bias, and their values are 0.
    """

    bias_rows: Tensor

    def __init__(
        self,
        dim: int,
        geometry: WindowGeometry,
        hidden: int,
        *,
        qkv_bias: bool = True,
        position_bias: bool = True,
    ) -> None:
        super().__init__(geometry)
        self.relative_position_bias_table = position_bias_table(geometry) if position_bias else None
        rows = map_published_rows(geometry.window, geometry.key_window)
        self.register_buffer("bias_rows", rows, persistent=False)
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, hidden)

    def bias_table(self) -> Tensor | None:
        """Return the position biases in the order of sites; the trained table has HAT's."""
        table = self.relative_position_bias_table
        return None if table is None else torch.index_select(table, 0, self.bias_rows)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for the map x (B, H, W, dim)."""
        x = x + self.proj(self.attend(self.qkv(self.norm1(x))))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y
