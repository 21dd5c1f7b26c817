"""The local attention of RGT: rectangles of both directions, and a convolution of the values."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .stripes import BothStripes


class LocalAttention(nn.Module):
    """Attention of the tokens (B, H * W, dim) of a map; the result has the same shape."""

    def __init__(self, own: Any) -> None:
        """Take the parts of an original module."""
        super().__init__()
        self.qkv, self.proj, self.get_v = own.qkv, own.proj, own.get_v
        self.attns = BothStripes(own, shifted=own.attn_mask_0 is not None)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Return the attention of the tokens x (B, H * W, dim) of a map of that size."""
        qkv = self.qkv(x.reshape(x.shape[0], height, width, x.shape[2]))
        value = qkv.chunk(3, dim=-1)[2].permute(0, 3, 1, 2)
        near = self.get_v(value).permute(0, 2, 3, 1)
        projected: Tensor = self.proj((self.attns(qkv) + near).reshape(x.shape))
        return projected


def adapt(own: Any, _: nn.Module) -> LocalAttention:
    """Return the module with its attention in sites."""
    return LocalAttention(own)
