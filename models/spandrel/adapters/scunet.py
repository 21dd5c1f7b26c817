"""The windows of SCUNet: its table of position biases has the heads first."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ...geometry import WindowGeometry
from ...sites import WindowSite


class SCUNetAttention(WindowSite):
    """Window attention with its projections, from a map (B, H, W, dim) to one of the same shape.

    Scores between different regions get -100 in the site, and minus infinity in SCUNet: both lead
    to a weight of 0 if scores differ by much less than 100.
    """

    def __init__(self, own: Any) -> None:
        """Take the projections and biases of an original module."""
        shifted = own.type != "W"
        shift = own.window_size // 2 if shifted else 0
        geometry = WindowGeometry(
            heads=own.n_heads,
            head_dim=own.head_dim,
            value_dim=own.head_dim,
            window=(own.window_size, own.window_size),
            shift=(shift, shift),
            masked=shifted,
            scale=own.scale,
        )
        super().__init__(geometry)
        self.qkv, self.proj = own.embedding_layer, own.linear
        table = own.relative_position_params.detach().flatten(1).T.contiguous()
        self.relative_position_bias_table = nn.Parameter(table)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention (B, H, W, dim) of the map x (B, H, W, dim)."""
        projected: Tensor = self.proj(self.attend(self.qkv(x)))
        return projected


def adapt(own: Any, _: nn.Module) -> SCUNetAttention:
    """Return the attention as a site."""
    return SCUNetAttention(own)
