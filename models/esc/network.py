"""ESC (Lee et al., 2025), ESC-FP and ESC-RIB, state-dict compatible with the published checkpoints.

The constructor's names are those of the published configurations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..layers.attention_types import attention_of_type
from ..layers.channel_map import ChannelNorm
from ..layers.map_attention import MapAttention, TableAttention
from ..layers.position_channels import make_geometry
from ..layers.upsamplers import enlarge, upsampler
from .block import Block, BlockPlan
from .convolutions import LargeFilter, SeparatedFilter, symmetric

LARGEST_SCALE = 64


class EscNetwork(nn.Module):
    """The blocks that all variants have: an image (B, 3, H, W) of any H and W >= 1.

    A subclass has ``proj``, ``last`` and the upsampler.

    Attributes:
        first_ratio: Hidden over outer width of a block's first feed-forward.
        convolution: Makes convolutional attention of a number of channels.
    """

    first_ratio: ClassVar[float] = 2
    convolution: ClassVar[type[nn.Module]] = LargeFilter

    def __init__(
        self,
        attention: Callable[[], MapAttention] | None = None,
        /,
        *,
        dim: int = 64,
        pdim: int = 16,
        kernel_size: int = 13,
        n_blocks: int = 5,
        conv_blocks: int = 5,
        window_size: int = 32,
        num_heads: int = 4,
        upscaling_factor: int = 2,
        exp_ratio: float = 1.25,
        use_ln: bool = False,
    ) -> None:
        """Build the blocks and their filters.

        Args:
            attention: Makes the window attention of a block; None: ESC's.
            dim: Channels of the map.
            pdim: Channels of convolutional attention.
            kernel_size: Side of its large filter, odd.
            n_blocks: Blocks, each with one window attention.
            conv_blocks: Convolutional attentions of a block.
            window_size: Side of a window.
            num_heads: Heads of window attention.
            upscaling_factor: Output side over input side.
            exp_ratio: Hidden over outer width of the other feed-forwards.
            use_ln: Feed-forwards are behind a norm.

        Raises:
            ValueError: Arguments that contradict each other, or a size that no network has.
        """
        super().__init__()
        if n_blocks < 1 or not 1 <= upscaling_factor <= LARGEST_SCALE:
            raise ValueError(
                f"n_blocks {n_blocks} must be at least 1, upscaling_factor {upscaling_factor} "
                f"within 1 to {LARGEST_SCALE}"
            )
        plan = BlockPlan(
            dim=dim,
            part=pdim,
            steps=conv_blocks,
            first_ratio=self.first_ratio,
            ratio=exp_ratio,
            norms=use_ln,
            attention=attention
            or (lambda: TableAttention(dim, make_geometry(dim, num_heads, window_size))),
            convolution=self.convolution,
        )
        self.window = (window_size, window_size)
        self.scale = upscaling_factor
        self.blocks = nn.ModuleList(Block(plan) for _ in range(n_blocks))
        self.add_filters(pdim, kernel_size)

    def add_filters(self, part: int, side: int) -> None:
        """Add the filters that all blocks share, for ``part`` channels."""
        self.plk_filter = new_filter(part, part, side)

    def shared_filters(self) -> tuple[Tensor, ...]:
        """Return the large filters as blocks take them: rotations and reflections averaged."""
        return (symmetric(self.plk_filter),)

    def deep(self, features: Tensor) -> Tensor:
        """Return the output of the blocks for a map."""
        shared = self.shared_filters()
        for block in self.blocks:
            features = block(features, *shared)
        return features


class ESC(EscNetwork):
    """ESC: (B, 3, H, W) to (B, 3, H * upscaling_factor, W * upscaling_factor).

    Source: D. Lee et al., "Emulating Self-attention with Convolution for Efficient Image
    Super-Resolution", 2025.
    """

    def __init__(self, *, dim: int = 64, **sizes: Any) -> None:
        """Build the network; arguments as of `EscNetwork`."""
        super().__init__(dim=dim, **sizes)
        self.proj = nn.Conv2d(3, dim, 3, 1, 1)
        self.last = nn.Conv2d(dim, dim, 3, 1, 1)
        self.to_img = nn.Conv2d(dim, 3 * self.scale**2, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, 3, H, W), values 0..1."""
        features = self.proj(x)
        features = self.last(self.deep(features)) + features
        return F.pixel_shuffle(self.to_img(features), self.scale) + enlarge(x, self.scale)


class ESCFP(EscNetwork):
    """ESC-FP, with norms and a large filter of each channel; shapes as of `ESC`."""

    first_ratio: ClassVar[float] = 1.5
    convolution: ClassVar[type[nn.Module]] = SeparatedFilter

    def __init__(self, *, dim: int = 48, num_heads: int = 3, **sizes: Any) -> None:
        """Build the network; arguments as of `EscNetwork`, but ``use_ln``."""
        super().__init__(dim=dim, num_heads=num_heads, use_ln=True, **sizes)
        self.proj = nn.Conv2d(3, dim, 3, 1, 1)
        self.ln_last = ChannelNorm(dim)
        self.last = nn.Conv2d(dim, dim, 3, 1, 1)
        self.to_img = nn.Conv2d(dim, 3 * self.scale**2, 3, 1, 1)

    def add_filters(self, part: int, side: int) -> None:
        """Add the filter of channels and the one of places."""
        self.lk_channel = new_filter(part, part, 1)
        self.lk_spatial = new_filter(part, 1, side)

    def shared_filters(self) -> tuple[Tensor, ...]:
        """Return the filter of channels and the one of places."""
        return self.lk_channel, self.lk_spatial

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, 3, H, W), values 0..1."""
        features = self.proj(x)
        features = self.last(self.ln_last(self.deep(features))) + features
        smooth = F.interpolate(x, scale_factor=float(self.scale), mode="bicubic")
        return F.pixel_shuffle(self.to_img(features), self.scale) + smooth


class ESCRIB(EscNetwork):
    """ESC-RIB, with the position bias and the gate of SST; shapes as of `ESC`.

    The published code rounds its window attention to bfloat16; this one computes it in float32.
    """

    first_ratio: ClassVar[float] = 4

    def __init__(
        self,
        *,
        dim: int = 64,
        window_size: int = 64,
        num_heads: int = 4,
        attn_type: str = "RIB",
        rank: int = 16,
        flashbias_rank: int | None = None,
        rib_hidden_dim: int = 32,
        rib_n_freqs: int = 10,
        gate_type: str | None = None,
        upsampler_type: str = "pixelshuffle_direct",
        intermediate_dim: int = 64,
        **sizes: Any,
    ) -> None:
        """Build the network; arguments as of `EscNetwork` and `SST`.

        ``flashbias_rank`` is another name of ``rank``.
        """

        def attention() -> MapAttention:
            return attention_of_type(
                attn_type,
                dim,
                num_heads,
                window_size,
                rank=rank if flashbias_rank is None else flashbias_rank,
                hidden=rib_hidden_dim,
                frequencies=rib_n_freqs,
                gate=gate_type,
            )

        super().__init__(attention, dim=dim, window_size=window_size, num_heads=num_heads, **sizes)
        self.proj = nn.Conv2d(3, dim, 3, 1, 1)
        self.last = nn.Sequential(ChannelNorm(dim), nn.Conv2d(dim, dim, 3, 1, 1))
        self.upsampler = upsampler(upsampler_type, dim, intermediate_dim, self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, 3, H, W), values 0..1."""
        features = self.proj(x)
        image: Tensor = self.upsampler(self.last(self.deep(features)) + features, x)
        return image


def new_filter(outputs: int, inputs: int, side: int) -> nn.Parameter:
    """Return a filter of all blocks, (outputs, inputs, side, side)."""
    if side < 1 or side % 2 == 0:
        raise ValueError(f"kernel_size {side} must be odd")
    weights = torch.randn(outputs, inputs, side, side)
    return nn.Parameter(weights * (inputs * side * side) ** -0.5)
