"""Attention in two kinds of rectangles, one for each half of the channels: DAT, RGT.

The first half has windows of rows x columns, the second of columns x rows. The map is padded with
zeros to multiples of the longer side. As in the published code, padding is attended to like tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...geometry import WindowGeometry
from ...layers.padding import crop
from ...sites import WindowSite
from ...sizes.borders import Sides


class Stripes(WindowSite):
    """Attention of one half: qkv (B, H, W, 3 * dim) to (B, H, W, dim)."""

    def __init__(self, own: Any, shift: tuple[int, int]) -> None:
        """Compute the table of position biases of an original module, once."""
        head_dim = own.dim // own.num_heads
        geometry = WindowGeometry(
            heads=own.num_heads,
            head_dim=head_dim,
            value_dim=head_dim,
            window=(own.H_sp, own.W_sp),
            shift=shift,
            masked=any(shift),
            scale=own.scale,
        )
        super().__init__(geometry)
        self.relative_position_bias_table = None
        if own.position_bias:
            with torch.no_grad():
                self.relative_position_bias_table = nn.Parameter(own.pos(own.rpe_biases))

    def forward(self, qkv: Tensor) -> Tensor:
        """Return the attention (B, H, W, dim) of qkv (B, H, W, 3 * dim)."""
        return self.attend(qkv)


class BothStripes(nn.Module):
    """Attention of both halves: qkv (B, H, W, 3 * dim), any H and W, to (B, H, W, dim)."""

    def __init__(self, own: Any, *, shifted: bool) -> None:
        """Take the two modules in ``attns`` of an original module."""
        super().__init__()
        rows, columns = own.shift_size if shifted else (0, 0)
        first, second = own.attns
        self.halves = nn.ModuleList(
            (Stripes(first, (rows, columns)), Stripes(second, (columns, rows)))
        )
        self.sides = Sides(max(own.split_size), "zero")

    def forward(self, qkv: Tensor) -> Tensor:
        """Return the attention (B, H, W, dim) of query, key, value packed (B, H, W, 3 * dim)."""
        height, width = qkv.shape[1], qkv.shape[2]
        padded = self.sides.pad(qkv.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        parts = [part.chunk(2, dim=-1) for part in padded.chunk(3, dim=-1)]
        outputs = [
            half(torch.cat([part[place] for part in parts], dim=-1))
            for place, half in enumerate(self.halves)
        ]
        whole = torch.cat(outputs, dim=-1).permute(0, 3, 1, 2)
        return crop(whole, height, width).permute(0, 2, 3, 1)
