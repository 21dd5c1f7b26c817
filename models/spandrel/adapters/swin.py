"""Blocks of Swin transformers, attention behind a LayerNorm: SwinIR, DRCT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ...geometry import WindowGeometry
from ...sites import WindowSite


class SwinAttention(WindowSite):
    """Projections around window attention: a map (B, H, W, dim) to the same."""

    def __init__(self, geometry: WindowGeometry, attention: Any) -> None:
        """Take the projections and the table of position biases of a foreign module."""
        super().__init__(geometry)
        self.qkv, self.proj = attention.qkv, attention.proj
        self.relative_position_bias_table = attention.relative_position_bias_table

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of the map x (B, H, W, dim)."""
        projected: Tensor = self.proj(self.attend(self.qkv(x)))
        return projected


class SwinBlock(nn.Module):
    """Attention and MLP, each behind a LayerNorm and a skip: (B, H * W, dim) to the same."""

    def __init__(self, block: Any) -> None:
        """Take the parts of a foreign block."""
        super().__init__()
        self.norm1, self.norm2, self.mlp = block.norm1, block.norm2, block.mlp
        self.attn = SwinAttention(block_geometry(block, block.attn.scale), block.attn)

    def forward(self, x: Tensor, size: Sequence[int]) -> Tensor:
        """Return the block's output for the tokens x of a map of that height and width."""
        maps = self.norm1(x).reshape(x.shape[0], size[0], size[1], x.shape[2])
        x = x + self.attn(maps).reshape(x.shape)
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


def block_geometry(block: Any, scale: float) -> WindowGeometry:
    """Return the geometry of a foreign block of the usual names."""
    head_dim = block.dim // block.num_heads
    return WindowGeometry(
        heads=block.num_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        window=(block.window_size, block.window_size),
        shift=(block.shift_size, block.shift_size),
        masked=block.shift_size > 0,
        scale=scale,
    )


def adapt(block: Any, _: nn.Module) -> SwinBlock:
    """Return the block with its attention in a site."""
    return SwinBlock(block)
