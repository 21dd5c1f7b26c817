"""The windows of SRFormer: many queries, a quarter of the keys.

A key represents a cell of 2x2 tokens, with a quarter of its channels from each token. So a window
of w x w queries has w/2 x w/2 keys. The position bias is that of the cell that contains the query.
The queries at one position in their cells form, with the keys, normal windows of side w/2. The
four positions are four images of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...geometry import WindowGeometry
from ...sites import WindowSite


class PermutedAttention(WindowSite):
    """Attention to cells with its projections, from a map (B, H, W, dim) to one of that shape."""

    def __init__(self, block: Any) -> None:
        head_dim = block.dim // block.num_heads
        geometry = WindowGeometry(
            heads=block.num_heads,
            head_dim=head_dim,
            value_dim=head_dim,
            window=(block.window_size // 2, block.window_size // 2),
            shift=(block.shift_size // 2, block.shift_size // 2),
            masked=block.shift_size > 0,
            scale=block.attn.scale,
        )
        super().__init__(geometry)
        own = block.attn
        self.q, self.kv, self.proj = own.q, own.kv, own.proj
        self.relative_position_bias_table = own.relative_position_bias_table

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention (B, H, W, dim) of the map x (B, H, W, dim); H and W are even."""
        batch, height, width, dim = x.shape
        cells = (batch, height // 2, 2, width // 2, 2)
        query = self.q(x).reshape(*cells, dim).permute(2, 4, 0, 1, 3, 5).flatten(0, 2)
        pairs = self.kv(x).reshape(*cells, 2, dim // 4).permute(0, 1, 3, 5, 2, 4, 6)
        pairs = pairs.flatten(3).repeat(4, 1, 1, 1)
        attended = self.attend(torch.cat((query, pairs), dim=-1))
        places = attended.reshape(2, 2, batch, height // 2, width // 2, dim)
        projected: Tensor = self.proj(places.permute(2, 3, 0, 4, 1, 5).reshape(x.shape))
        return projected


class PermutedBlock(nn.Module):
    """Attention and MLP, each with a LayerNorm and a residual connection, on (B, H * W, dim)."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.norm1, self.norm2, self.mlp = block.norm1, block.norm2, block.mlp
        self.attn = PermutedAttention(block)

    def forward(self, x: Tensor, size: Sequence[int]) -> Tensor:
        """Return the output of the block for the tokens x (B, H * W, dim); ``size`` is H and W."""
        maps = self.norm1(x).reshape(x.shape[0], size[0], size[1], x.shape[2])
        x = x + self.attn(maps).reshape(x.shape)
        y: Tensor = x + self.mlp(self.norm2(x), size)
        return y


def adapt(block: Any, _: nn.Module) -> PermutedBlock | None:
    """Return the block with its attention in a site; None if a shift cuts cells."""
    return None if block.shift_size % 2 else PermutedBlock(block)
