"""ESC's block: one window attention, then convolutional attentions; keeps (B, C, H, W)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from ..layers.channel_map import ChannelNorm, ConvMlp, hidden_width
from ..layers.map_attention import MapAttention
from .convolutions import PartialConvolution


@dataclass(frozen=True)
class BlockPlan:
    """The parameters of the blocks of a network.

    Attributes:
        dim: Channels of the map.
        part: Channels of convolutional attention.
        steps: Number of convolutional attentions in a block.
        first_ratio: Hidden over outer width of the block's first feed-forward.
        ratio: The same of all others.
        norms: Each of the others follows a norm.
        attention: Makes the window attention.
        convolution: Makes the attention of ``part`` channels by convolution.
    """

    dim: int
    part: int
    steps: int
    first_ratio: float
    ratio: float
    norms: bool
    attention: Callable[[], MapAttention]
    convolution: Callable[[int], nn.Module]

    def __post_init__(self) -> None:
        if not 4 <= self.part <= self.dim or self.steps < 1 or self.ratio <= 0:
            raise ValueError(
                f"pdim {self.part} must be within 4 to dim, {self.dim}; conv_blocks {self.steps} "
                f"at least 1, exp_ratio {self.ratio} above 0"
            )


class Block(nn.Module):
    """A block; it takes the map and the network's large filters, which all blocks share."""

    def __init__(self, plan: BlockPlan) -> None:
        super().__init__()
        dim, steps = plan.dim, range(plan.steps)
        hidden = hidden_width(dim, plan.ratio)
        self.ln_proj = ChannelNorm(dim)
        self.proj = ConvMlp(dim, hidden_width(dim, plan.first_ratio), "aggr")
        self.ln_attn = ChannelNorm(dim)
        self.attn = plan.attention()
        self.lns = nn.ModuleList(ChannelNorm(dim) if plan.norms else nn.Identity() for _ in steps)
        self.convffns = nn.ModuleList(ConvMlp(dim, hidden, "aggr") for _ in steps)
        self.pconvs = nn.ModuleList(
            PartialConvolution(dim, plan.part, plan.convolution(plan.part)) for _ in steps
        )
        self.ln_out = ChannelNorm(dim)
        self.conv_out = nn.Conv2d(dim, dim, 3, 1, 1)

    def forward(self, x: Tensor, *shared: Tensor) -> Tensor:
        """Return the block's output for the map x and the network's filters."""
        y = self.proj(self.ln_proj(x))
        y = y + self.attn(self.ln_attn(y))
        for norm, feed_forward, convolution in zip(
            self.lns, self.convffns, self.pconvs, strict=True
        ):
            y = y + convolution(feed_forward(norm(y)), *shared)
        out: Tensor = x + self.conv_out(self.ln_out(y))
        return out
