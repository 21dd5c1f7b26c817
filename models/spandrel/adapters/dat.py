"""The spatial attention of DAT: rectangles of both directions, mixed with a convolution.

Attention and convolution weight each other. The result of the convolution gives one weight per
channel for the result of the attention. That gives one weight per pixel for the convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .stripes import BothStripes


class SpatialAttention(nn.Module):
    """Attention of the tokens (B, H * W, dim) of a map; the result has the same shape."""

    def __init__(self, own: Any) -> None:
        """Take the parts of an original module."""
        super().__init__()
        self.qkv, self.proj, self.dwconv = own.qkv, own.proj, own.dwconv
        self.channel_interaction = own.channel_interaction
        self.spatial_interaction = own.spatial_interaction
        self.attns = BothStripes(own, shifted=own.attn_mask_0 is not None)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Return the attention of the tokens x (B, H * W, dim) of a map of that size."""
        qkv = self.qkv(x.reshape(x.shape[0], height, width, x.shape[2]))
        convolved = self.dwconv(qkv.chunk(3, dim=-1)[2].permute(0, 3, 1, 2))
        attended = self.attns(qkv).permute(0, 3, 1, 2)
        by_channel = torch.sigmoid(self.channel_interaction(convolved))
        by_pixel = torch.sigmoid(self.spatial_interaction(attended))
        mixed = attended * by_channel + convolved * by_pixel
        projected: Tensor = self.proj(mixed.permute(0, 2, 3, 1).reshape(x.shape))
        return projected


def adapt(own: Any, _: nn.Module) -> SpatialAttention:
    """Return the module with its attention in sites."""
    return SpatialAttention(own)
