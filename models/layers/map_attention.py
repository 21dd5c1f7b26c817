"""Window attention of networks whose map has the layout of convolutions, (B, C, H, W)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..geometry import WindowGeometry
from ..sites import WindowSite
from .padding import crop, pad_to_multiple
from .swin import to_image, to_map
from .window_sides import position_bias_table

GATES = ("DWC", "Linear")
"""The gates of attention: a sigmoid of convolutions of its input, which multiplies its result."""


class MapAttention(WindowSite):
    """Attention in windows of a mirrored map; keeps (B, dim, H, W), any H and W >= 1.

    A subclass adds the positions of the tokens to queries and keys (`packed`), or has a table.
    """

    def __init__(self, dim: int, geometry: WindowGeometry, gate: str | None = None) -> None:
        """Build the layers under the published keys.

        Args:
            dim: Channels of the map.
            geometry: Geometry of the windows. ``shift`` is cyclic, and nothing is masked.
            gate: One of `GATES`, or None.

        Raises:
            ValueError: There is no such gate.
        """
        super().__init__(geometry)
        self.to_qkv = nn.Conv2d(dim, 3 * dim, 1)
        self.to_out = nn.Conv2d(dim, dim, 1)
        self.gate: nn.Module | None = None
        if gate is not None:
            if gate not in GATES:
                raise ValueError(f"gate_type {gate!r} is none of {', '.join(GATES)}")
            depthwise = [nn.Conv2d(dim, dim, 3, 1, 1, groups=dim)] if gate == "DWC" else []
            self.gate = nn.Sequential(*depthwise, nn.Conv2d(dim, dim, 1), nn.Sigmoid())

    def pack(self, qkv: Tensor) -> Tensor:
        """Return the packed map for the implementation, from the projections of the map."""
        return qkv

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of the map x."""
        rows, columns = self.geometry.window
        padded = pad_to_multiple(to_map(x), (rows, columns), first=1)
        qkv = to_map(self.to_qkv(to_image(padded)))
        y = to_image(crop(self.attend(self.pack(qkv)), x.shape[2], x.shape[3], first=1))
        if self.gate is not None:
            y = y * self.gate(x)
        out: Tensor = self.to_out(y)
        return out


class TableAttention(MapAttention):
    """Attention whose position biases have offsets from the query to the key.

    The published table is (heads, (2 wh - 1)(2 ww - 1)); Swin's offsets are from key to query.
    """

    def __init__(self, dim: int, geometry: WindowGeometry, gate: str | None = None) -> None:
        super().__init__(dim, geometry, gate)
        table = position_bias_table(geometry).detach().mT.contiguous()
        self.relative_position_bias = nn.Parameter(table)

    def bias_table(self) -> Tensor:
        """Return the position biases in the order of sites."""
        return self.relative_position_bias.flip(1).mT


def over_map(features: Tensor, sides: tuple[int, int], geometry: WindowGeometry) -> Tensor:
    """Repeat the features of a window's positions over a map, (H, W, ...).

    Args:
        features: Features of each position of a window, (wh, ww, ...).
        sides: H and W, multiples of the window.
        geometry: Geometry of the windows: where they are shifted, places count from a window's
            corner.
    """
    for axis, (size, window, step) in enumerate(
        zip(sides, geometry.window, geometry.shift, strict=True)
    ):
        place = torch.arange(size, device=features.device)
        features = features.index_select(axis, (place + (window - step)) % window)
    return features
