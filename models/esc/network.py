"""ESC (Lee et al., 2025), ESC-FP and ESC-RIB, state-dict compatible with the published checkpoints.

The constructor's names are those of the published configurations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..layers.attention_types import attention_of_type
from ..layers.channel_map import ChannelNorm
from ..layers.map_attention import MapAttention, TableAttention
from ..layers.position_channels import plain_geometry
from ..layers.upsamplers import enlarged, upsampler
from .block import Block, BlockPlan
from .convolutions import LargeFilter, SeparatedFilter, symmetric

LARGEST_SCALE = 64


class EscNetwork(nn.Module):
    """The blocks that all variants have: an image (B, 3, H, W) of any H and W >= 1.

    A subclass has ``proj``, ``last`` and the upsampler.
    """

    def __init__(self, plan: BlockPlan, *, n_blocks: int, window: int, scale: int) -> None:
        """Build the blocks.

        Args:
            plan: The parameters of each block.
            n_blocks: Number of blocks.
            window: Side of their windows.
            scale: Output side over input side.

        Raises:
            ValueError: A size that no network has.
        """
        super().__init__()
        if n_blocks < 1 or not 1 <= scale <= LARGEST_SCALE:
            raise ValueError(
                f"n_blocks {n_blocks} must be at least 1, upscaling_factor {scale} within 1 to "
                f"{LARGEST_SCALE}"
            )
        self.window = (window, window)
        self.scale = scale
        self.blocks = nn.ModuleList(Block(plan) for _ in range(n_blocks))

    def shared(self) -> tuple[Tensor, ...]:
        """Return the large filters as blocks take them."""
        raise NotImplementedError

    def deep(self, features: Tensor) -> Tensor:
        """Return the output of the blocks for a map."""
        shared = self.shared()
        for block in self.blocks:
            features = block(features, *shared)
        return features


class LargeFilterNetwork(EscNetwork):
    """The variants whose blocks take one large filter."""

    def __init__(
        self, plan: BlockPlan, kernel_size: int, n_blocks: int, window: int, scale: int
    ) -> None:
        """Build the blocks and the filter.

        Args:
            plan: As of `EscNetwork`, as are all that are not listed here.
            kernel_size: Side of the filter, odd.
            n_blocks: The same.
            window: The same.
            scale: The same.

        Raises:
            ValueError: A size that no network has.
        """
        super().__init__(plan, n_blocks=n_blocks, window=window, scale=scale)
        self.plk_filter = _filter(plan.part, plan.part, kernel_size)

    def shared(self) -> tuple[Tensor, ...]:
        """Return the large filter, its rotations and reflections averaged."""
        return (symmetric(self.plk_filter),)


class ESC(LargeFilterNetwork):
    """ESC: (B, 3, H, W) to (B, 3, H * upscaling_factor, W * upscaling_factor).

    Source: D. Lee et al., "Emulating Self-attention with Convolution for Efficient Image
    Super-Resolution", 2025.
    """

    def __init__(
        self,
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
        """Build the network.

        Args:
            dim: Channels of the map.
            pdim: Channels of convolutional attention.
            kernel_size: Side of its large filter, odd.
            n_blocks: Blocks, each with one window attention.
            conv_blocks: Convolutional attentions of a block.
            window_size: Side of a window.
            num_heads: Heads of window attention.
            upscaling_factor: Output side over input side.
            exp_ratio: Hidden over outer width of the feed-forwards.
            use_ln: Feed-forwards are behind a norm.

        Raises:
            ValueError: Arguments that contradict each other.
        """
        plan = BlockPlan(
            dim=dim,
            part=pdim,
            steps=conv_blocks,
            first_ratio=2,
            ratio=exp_ratio,
            norms=use_ln,
            attention=table_attention(dim, num_heads, window_size),
            convolution=LargeFilter,
        )
        super().__init__(plan, kernel_size, n_blocks, window_size, upscaling_factor)
        self.proj = nn.Conv2d(3, dim, 3, 1, 1)
        self.last = nn.Conv2d(dim, dim, 3, 1, 1)
        self.to_img = nn.Conv2d(dim, 3 * upscaling_factor**2, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, 3, H, W), values 0..1."""
        features = self.proj(x)
        features = self.last(self.deep(features)) + features
        return F.pixel_shuffle(self.to_img(features), self.scale) + enlarged(x, self.scale)


class ESCFP(EscNetwork):
    """ESC-FP, with norms and a large filter of each channel; shapes as of `ESC`."""

    def __init__(
        self,
        *,
        dim: int = 48,
        pdim: int = 16,
        kernel_size: int = 13,
        n_blocks: int = 5,
        conv_blocks: int = 5,
        window_size: int = 32,
        num_heads: int = 3,
        upscaling_factor: int = 2,
        exp_ratio: float = 1.25,
    ) -> None:
        """Build the network; arguments as of `ESC`."""
        plan = BlockPlan(
            dim=dim,
            part=pdim,
            steps=conv_blocks,
            first_ratio=1.5,
            ratio=exp_ratio,
            norms=True,
            attention=table_attention(dim, num_heads, window_size),
            convolution=SeparatedFilter,
        )
        super().__init__(plan, n_blocks=n_blocks, window=window_size, scale=upscaling_factor)
        self.lk_channel = _filter(pdim, pdim, 1)
        self.lk_spatial = _filter(pdim, 1, kernel_size)
        self.proj = nn.Conv2d(3, dim, 3, 1, 1)
        self.ln_last = ChannelNorm(dim)
        self.last = nn.Conv2d(dim, dim, 3, 1, 1)
        self.to_img = nn.Conv2d(dim, 3 * upscaling_factor**2, 3, 1, 1)

    def shared(self) -> tuple[Tensor, ...]:
        """Return the filter of channels and the one of places."""
        return self.lk_channel, self.lk_spatial

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, 3, H, W), values 0..1."""
        features = self.proj(x)
        features = self.last(self.ln_last(self.deep(features))) + features
        smooth = F.interpolate(x, scale_factor=float(self.scale), mode="bicubic")
        return F.pixel_shuffle(self.to_img(features), self.scale) + smooth


class ESCRIB(LargeFilterNetwork):
    """ESC-RIB, with the position bias and the gate of SST; shapes as of `ESC`.

    The published code rounds its window attention to bfloat16; this one computes it in float32.
    """

    def __init__(
        self,
        *,
        dim: int = 64,
        pdim: int = 16,
        kernel_size: int = 13,
        n_blocks: int = 5,
        conv_blocks: int = 5,
        window_size: int = 64,
        num_heads: int = 4,
        upscaling_factor: int = 2,
        exp_ratio: float = 1.25,
        attn_type: str = "RIB",
        rank: int = 16,
        flashbias_rank: int | None = None,
        rib_hidden_dim: int = 32,
        rib_n_freqs: int = 10,
        gate_type: str | None = None,
        use_ln: bool = False,
        upsampler_type: str = "pixelshuffle_direct",
        intermediate_dim: int = 64,
    ) -> None:
        """Build the network; arguments as of `ESC` and `SST`.

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

        plan = BlockPlan(
            dim=dim,
            part=pdim,
            steps=conv_blocks,
            first_ratio=4,
            ratio=exp_ratio,
            norms=use_ln,
            attention=attention,
            convolution=LargeFilter,
        )
        super().__init__(plan, kernel_size, n_blocks, window_size, upscaling_factor)
        self.proj = nn.Conv2d(3, dim, 3, 1, 1)
        self.last = nn.Sequential(ChannelNorm(dim), nn.Conv2d(dim, dim, 3, 1, 1))
        self.upsampler = upsampler(upsampler_type, dim, intermediate_dim, upscaling_factor)

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, 3, H, W), values 0..1."""
        features = self.proj(x)
        image: Tensor = self.upsampler(self.last(self.deep(features)) + features, x)
        return image


def table_attention(dim: int, heads: int, window: int) -> Callable[[], MapAttention]:
    """Return what makes ESC's window attention."""
    return lambda: TableAttention(dim, plain_geometry(dim, heads, window))


def _filter(outputs: int, inputs: int, side: int) -> nn.Parameter:
    """Return a filter of all blocks, (outputs, inputs, side, side)."""
    if side < 1 or side % 2 == 0:
        raise ValueError(f"kernel_size {side} must be odd")
    weights = torch.randn(outputs, inputs, side, side)
    return nn.Parameter(weights * (inputs * side * side) ** -0.5)
