"""SST (arXiv 2603.06738), state-dict compatible with the published checkpoints.

The constructor's names are those of the published configurations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from ..layers.attention_types import attention_of_type
from ..layers.channel_map import ChannelNorm, ConvMlp, hidden_width
from ..layers.map_attention import MapAttention
from ..layers.upsamplers import upsampler

CPE = "CPE"
"""The attention type without positions in a layer that adds them by a convolution."""

_LARGEST_SCALE = 64


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and a skip: (B, dim, H, W) to the same.

    With ``places`` a depthwise 3x3 convolution is added to the map before both.
    """

    def __init__(self, dim: int, hidden: int, attention: MapAttention, *, places: bool) -> None:
        super().__init__()
        self.cpe = nn.Conv2d(dim, dim, 3, 1, 1, groups=dim) if places else None
        self.norm_attn = ChannelNorm(dim)
        self.attn = attention
        self.norm_ffn = ChannelNorm(dim)
        self.ffn = ConvMlp(dim, hidden, "agg")

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for x."""
        if self.cpe is not None:
            x = x + self.cpe(x)
        x = x + self.attn(self.norm_attn(x))
        y: Tensor = x + self.ffn(self.norm_ffn(x))
        return y


class Block(nn.Sequential):
    """Layers one after another and a convolution, behind a skip: (B, dim, H, W) to the same."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for x."""
        y = x
        for layer in self:
            y = layer(y)
        return x + y


class SST(nn.Module):
    """SST: (B, 3, H, W) to (B, 3, H * upscaling_factor, W * upscaling_factor), any H and W >= 1.

    The published code rounds attention to bfloat16; this one computes it in float32.

    Source: "SST" (arXiv 2603.06738); position bias: "RIB" of the same paper.
    """

    def __init__(
        self,
        *,
        dim: int = 48,
        window_sizes: Sequence[int] = (8, 16, 32, 16, 32, 64),
        num_heads: Sequence[int] = (3, 3, 3, 3, 3, 3),
        ranks: Sequence[int] = (16, 16, 16, 24, 24, 24),
        n_blocks: int = 5,
        exp_ratio: float = 1.5,
        attn_type: str = "RIB",
        rib_hidden_dim: int = 32,
        rib_n_freqs: int = 10,
        upscaling_factor: int = 2,
        upsampler_type: str = "pixelshuffle_direct",
        gate_type: str | None = "DWC",
        intermediate_dim: int = 64,
    ) -> None:
        """Build the network.

        Args:
            dim: Channels of the map.
            window_sizes: Side of the windows of each layer of a block. Where all are equal, every
                second layer shifts them by half.
            num_heads: Heads of each layer.
            ranks: Ranks of the position bias of each layer.
            n_blocks: Blocks, all alike.
            exp_ratio: Hidden over outer width of the feed-forward.
            attn_type: "RIB", or a type that no published network has: "CPE" or another one of
                `ATTENTION_TYPES`.
            rib_hidden_dim: Width of the network of positions.
            rib_n_freqs: Frequencies of its coordinates.
            upscaling_factor: Output side over input side.
            upsampler_type: "pixelshuffle_direct", "pixelshuffle" or "nn+conv".
            gate_type: "DWC", "Linear" or None.
            intermediate_dim: Channels between the convolutions of the upsampler.

        Raises:
            ValueError: Arguments that contradict each other.
        """
        super().__init__()
        if not len(window_sizes) == len(num_heads) == len(ranks):
            raise ValueError(
                f"window_sizes {list(window_sizes)}, num_heads {list(num_heads)} and ranks "
                f"{list(ranks)} must have the same length: one number per layer of a block"
            )
        if min(dim, n_blocks, upscaling_factor, intermediate_dim) < 1 or exp_ratio <= 0:
            raise ValueError("dim, n_blocks, upscaling_factor and exp_ratio must be above 0")
        if upscaling_factor > _LARGEST_SCALE:
            raise ValueError(f"upscaling_factor {upscaling_factor} is above {_LARGEST_SCALE}")
        self.scale = upscaling_factor
        self.multiple = math.lcm(*(max(side, 1) for side in window_sizes))
        shifted = len(set(window_sizes)) == 1

        def layer(index: int, window: int, heads: int, rank: int) -> Layer:
            attention = attention_of_type(
                "NoPE" if attn_type == CPE else attn_type,
                dim,
                heads,
                window,
                rank=rank,
                hidden=rib_hidden_dim,
                frequencies=rib_n_freqs,
                gate=gate_type,
                shift=window // 2 if shifted and index % 2 else 0,
            )
            hidden = hidden_width(dim, exp_ratio)
            return Layer(dim, hidden, attention, places=attn_type == CPE)

        def block() -> Block:
            layers = map(layer, range(len(ranks)), window_sizes, num_heads, ranks)
            return Block(*layers, nn.Conv2d(dim, dim, 3, 1, 1))

        self.proj = nn.Conv2d(3, dim, 3, 1, 1)
        self.body = nn.Sequential(
            *(block() for _ in range(n_blocks)), ChannelNorm(dim), nn.Conv2d(dim, dim, 3, 1, 1)
        )
        self.upsampler = upsampler(upsampler_type, dim, intermediate_dim, upscaling_factor)

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, 3, H, W), values 0..1."""
        features = self.proj(x)
        image: Tensor = self.upsampler(features + self.body(features), x)
        return image
