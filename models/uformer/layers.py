"""The parts of Uformer, all but the projections of images on maps (B, H, W, channels)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..geometry import WindowGeometry
from ..layers.swin import to_image, to_map
from ..layers.window_sides import position_bias_table
from ..sites import WindowSite


class _Projections(nn.Module):
    """Queries of one layer, keys and values of another, as published: packed q, k, v."""

    def __init__(self, dim: int, bias: bool) -> None:
        super().__init__()
        self.to_q = nn.Linear(dim, dim, bias=bias)
        self.to_kv = nn.Linear(dim, 2 * dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.to_q(x), self.to_kv(x)], dim=-1)


class WindowAttention(WindowSite):
    """Projections around window attention: (B, H, W, dim) to the same."""

    def __init__(
        self, dim: int, geometry: WindowGeometry, *, qkv_bias: bool, position_bias: bool
    ) -> None:
        super().__init__(geometry)
        self.relative_position_bias_table = position_bias_table(geometry) if position_bias else None
        self.qkv = _Projections(dim, qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of the map x (B, H, W, dim)."""
        projected: Tensor = self.proj(self.attend(self.qkv(x)))
        return projected


class Modulator(nn.Module):
    """A trained vector for each place of a window, added to every window of the shifted map."""

    def __init__(self, dim: int, geometry: WindowGeometry) -> None:
        super().__init__()
        self.window, self.shift = geometry.window, geometry.shift
        self.weight = nn.Parameter(torch.zeros(geometry.tokens, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Return the map x (B, H, W, dim) with the vectors added."""
        rows, columns = self.window
        window = self.weight.view(rows, columns, -1)
        if any(self.shift):  # the map is shifted later; here the windows are shifted against it
            window = window.roll(self.shift, (0, 1))
        cut = x.unflatten(2, (-1, columns)).unflatten(1, (-1, rows))
        added: Tensor = cut + window[:, None]
        return added.flatten(1, 2).flatten(2, 3)


class Leff(nn.Module):
    """Linear layers around a depthwise convolution that sees neighbors (``leff``)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.linear1 = nn.Sequential(nn.Linear(dim, hidden), nn.GELU())
        self.dwconv = nn.Sequential(nn.Conv2d(hidden, hidden, 3, 1, 1, groups=hidden), nn.GELU())
        self.linear2 = nn.Sequential(nn.Linear(hidden, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers' output for the map x (B, H, W, dim)."""
        y: Tensor = self.linear2(to_map(self.dwconv(to_image(self.linear1(x)))))
        return y


class Block(nn.Module):
    """Attention and feed-forward, each behind a LayerNorm and a skip: (B, H, W, dim) to the same.

    The modulator comes between the first LayerNorm and the projections, so that it shifts
    queries, keys and values of every mechanism.
    """

    def __init__(
        self, dim: int, attention: WindowAttention, feed_forward: nn.Module, modulated: bool
    ) -> None:
        super().__init__()
        self.modulator = Modulator(dim, attention.geometry) if modulated else None
        self.norm1 = nn.LayerNorm(dim)
        self.attn = attention
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = feed_forward

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for the map x."""
        normed = self.norm1(x)
        x = x + self.attn(normed if self.modulator is None else self.modulator(normed))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class InputProjection(nn.Module):
    """An image (B, channels, H, W) to a map (B, H, W, dim)."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Sequential(nn.Conv2d(channels, dim, 3, 1, 1), nn.LeakyReLU(0.01))

    def forward(self, x: Tensor) -> Tensor:
        """Return the map of the image x."""
        return to_map(self.proj(x))


class OutputProjection(nn.Module):
    """A map (B, H, W, dim) to an image (B, channels, H, W)."""

    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.proj = nn.Sequential(nn.Conv2d(dim, channels, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the image of the map x."""
        y: Tensor = self.proj(to_image(x))
        return y


class Downsample(nn.Module):
    """(B, H, W, inputs) to (B, H / 2, W / 2, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(inputs, outputs, 4, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the smaller map."""
        return to_map(self.conv(to_image(x)))


class Upsample(nn.Module):
    """(B, H, W, inputs) to (B, 2 H, 2 W, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.deconv = nn.Sequential(nn.ConvTranspose2d(inputs, outputs, 2, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Return the larger map."""
        return to_map(self.deconv(to_image(x)))
