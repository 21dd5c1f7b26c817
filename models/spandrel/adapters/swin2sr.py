"""Blocks of Swin2SR: cosine attention, its LayerNorms behind attention and MLP.

Its scores are s_h <q / |q|, k / |k|> with a factor s_h a head. Norm and factor concern one token
each, so they go into q and k before the windows are cut, and the usual site sees the usual scores.
Its table of position biases is computed by a small network, once: the weights do not change here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...sites import WindowSite
from .swin import block_geometry

_LARGEST_FACTOR = 100.0
_LARGEST_BIAS = 16.0


def factors_and_biases(own: Any, coordinates: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor of each head (heads, 1), and the table of position biases.

    Args:
        own: Has ``logit_scale``, the logarithm of the factors, and ``cpb_mlp``.
        coordinates: What the small network makes biases of: (1, 2 wh - 1, 2 ww - 1, 2).
    """
    heads = own.logit_scale.shape[0]
    with torch.no_grad():
        factor = own.logit_scale.clamp(max=math.log(_LARGEST_FACTOR)).exp().reshape(heads, 1)
        table = torch.sigmoid(own.cpb_mlp(coordinates).reshape(-1, heads))
    return factor, _LARGEST_BIAS * table


def normalised(qkv: Tensor, factor: Tensor) -> Tensor:
    """Return qkv (..., 3 * dim) with queries and keys of length 1, queries times the factor."""
    query, key, value = (part.unflatten(-1, (factor.shape[0], -1)) for part in qkv.chunk(3, -1))
    query = F.normalize(query, dim=-1) * factor
    key = F.normalize(key, dim=-1)
    return torch.cat((query, key, value), dim=-2).flatten(-2)


class CosineAttention(WindowSite):
    """Projections around window attention of normalised queries and keys."""

    factor: Tensor

    def __init__(self, block: Any) -> None:
        """Take the projections of a foreign block, and compute its factors and biases."""
        super().__init__(block_geometry(block, 1.0))
        own = block.attn
        self.qkv, self.proj = own.qkv, own.proj
        self.q_bias, self.v_bias = own.q_bias, own.v_bias
        factor, table = factors_and_biases(own, own.relative_coords_table)
        self.register_buffer("factor", factor)
        self.relative_position_bias_table = nn.Parameter(table)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of the map x (B, H, W, dim)."""
        bias = None
        if self.q_bias is not None:
            bias = torch.cat((self.q_bias, torch.zeros_like(self.v_bias), self.v_bias))
        qkv = normalised(F.linear(x, self.qkv.weight, bias), self.factor)
        projected: Tensor = self.proj(self.attend(qkv))
        return projected


class CosineBlock(nn.Module):
    """Attention and MLP, each before a LayerNorm and a skip: (B, H * W, dim) to the same."""

    def __init__(self, block: Any) -> None:
        """Take the parts of a foreign block."""
        super().__init__()
        self.norm1, self.norm2, self.mlp = block.norm1, block.norm2, block.mlp
        self.attn = CosineAttention(block)

    def forward(self, x: Tensor, size: Sequence[int]) -> Tensor:
        """Return the block's output for the tokens x of a map of that height and width."""
        maps = x.reshape(x.shape[0], size[0], size[1], x.shape[2])
        x = x + self.norm1(self.attn(maps).reshape(x.shape))
        y: Tensor = x + self.norm2(self.mlp(x))
        return y


def adapt(block: Any, _: nn.Module) -> CosineBlock:
    """Return the block with its attention in a site."""
    return CosineBlock(block)
