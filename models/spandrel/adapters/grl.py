"""The windows of GRL: cosine attention of half the channels; its anchored stripes stay as trained.

The other half attends through anchors, which are pooled from a stripe. Their grid differs from that
of the tokens, and no window site supports this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...geometry import WindowGeometry
from ...sites import WindowSite

_LARGEST_FACTOR = 100.0
_LARGEST_BIAS = 16.0


def _factors_and_biases(own: Any, coordinates: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor of each head (heads, 1), and the table of position biases.

    Args:
        own: Original module with ``logit_scale``, the logarithm of the factors, and ``cpb_mlp``,
            the small network of the biases.
        coordinates: Input of the small network, (1, 2 wh - 1, 2 ww - 1, 2).
    """
    heads = own.logit_scale.shape[0]
    with torch.no_grad():
        factor = own.logit_scale.clamp(max=math.log(_LARGEST_FACTOR)).exp().reshape(heads, 1)
        table = torch.sigmoid(own.cpb_mlp(coordinates).reshape(-1, heads))
    return factor, _LARGEST_BIAS * table


def _normalised(qkv: Tensor, factor: Tensor) -> Tensor:
    """Return qkv (..., 3 * dim) with queries and keys of length 1, queries times the factor."""
    query, key, value = (part.unflatten(-1, (factor.shape[0], -1)) for part in qkv.chunk(3, -1))
    query = F.normalize(query, dim=-1) * factor
    key = F.normalize(key, dim=-1)
    return torch.cat((query, key, value), dim=-2).flatten(-2)


class GRLWindows(WindowSite):
    """Window attention of projected tokens (B, H * W, 3 * dim), to (B, H * W, dim)."""

    factor: Tensor

    def __init__(self, own: Any, dim: int, coordinates: Tensor) -> None:
        """Compute factors and biases of an original module of that many channels."""
        head_dim = dim // own.num_heads
        geometry = WindowGeometry(
            heads=own.num_heads,
            head_dim=head_dim,
            value_dim=head_dim,
            window=tuple(own.window_size),
            shift=(own.shift_size, own.shift_size),
            masked=own.shift_size > 0,
        )
        super().__init__(geometry)
        factor, table = _factors_and_biases(own.attn_transform, coordinates)
        self.register_buffer("factor", factor)
        self.relative_position_bias_table = nn.Parameter(table)

    def forward(self, qkv: Tensor, size: Sequence[int], *_: Any) -> Tensor:
        """Return the attention of the tokens qkv, packed query, key, value, of a map of that size.

        Args:
            qkv: Projected tokens (B, H * W, 3 * dim).
            size: H and W.

        Returns:
            Tokens (B, H * W, dim).
        """
        maps = qkv.reshape(qkv.shape[0], size[0], size[1], qkv.shape[2])
        return self.attend(_normalised(maps, self.factor)).flatten(1, 2)


def adapt(mixed: Any, network: Any) -> nn.Module | None:
    """Return the module with its windows in a site; None if scores are distances."""
    if mixed.window_attn.euclidean_dist:
        return None
    mixed.window_attn = GRLWindows(mixed.window_attn, mixed.dim // 2, network.table_w)
    whole: nn.Module = mixed
    return whole
