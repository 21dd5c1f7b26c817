"""The layers of DehazeFormer, on maps (B, C, H, W)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..geometry import WindowGeometry
from ..layers.channel_map import MirroredConv2d, hidden_width
from ..layers.padding import crop, pad_to_multiple
from ..layers.swin import to_image, to_map
from ..layers.window_sides import both_sides
from ..sites import WindowSite

_BIAS_WIDTH = 256


class WholeNorm(nn.Module):
    """Normalizes each image by the mean and deviation over all its channels and pixels.

    Returns (B, dim, H, W), and the gain and offset for the result of the block,
    (B, dim, 1, 1). The result of a tile differs from that part of the result of the image.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dim, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, dim, 1, 1))
        self.meta1 = nn.Conv2d(1, dim, 1)
        self.meta2 = nn.Conv2d(1, dim, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return x normalized, the gain and the offset."""
        mean = x.mean((1, 2, 3), keepdim=True)
        centered = x - mean
        deviation = (centered.square().mean((1, 2, 3), keepdim=True) + 1e-5).sqrt()
        normalized = centered / deviation * self.weight + self.bias
        return normalized, self.meta1(deviation), self.meta2(mean)


class Fusion(nn.Module):
    """Weights two maps channel by channel, by their means over the whole image."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        inner = max(dim // 8, 4)
        self.mlp = nn.Sequential(
            nn.Conv2d(dim, inner, 1, bias=False),
            nn.ReLU(),
            nn.Conv2d(inner, 2 * dim, 1, bias=False),
        )

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the weighted sum of two maps (B, dim, H, W)."""
        mean = (a + b).mean((2, 3), keepdim=True)
        weights = self.mlp(mean).unflatten(1, (2, -1)).softmax(1)
        y: Tensor = weights[:, 0] * a + weights[:, 1] * b
        return y


class BiasedWindows(WindowSite):
    """Attention in windows, its position biases computed from logarithms of offsets."""

    offsets: Tensor

    def __init__(self, geometry: WindowGeometry) -> None:
        super().__init__(geometry)
        axes = [torch.arange(1 - side, side, dtype=torch.float32) for side in geometry.window]
        offsets = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 1)
        logarithms = offsets.sign() * offsets.abs().log1p()
        self.register_buffer("offsets", logarithms, persistent=False)
        self.meta = nn.Sequential(
            nn.Linear(2, _BIAS_WIDTH), nn.ReLU(), nn.Linear(_BIAS_WIDTH, geometry.heads)
        )

    def bias_table(self) -> Tensor:
        """Return the position biases in the order of sites."""
        table: Tensor = self.meta(self.offsets)
        return table

    def forward(self, packed: Tensor) -> Tensor:
        """Return the attention of a packed map, shapes as `WindowSite` says."""
        return self.attend(packed)


def _convolution(dim: int, kind: str) -> nn.Module:
    if kind == "DWConv":
        return MirroredConv2d(dim, dim, 5, groups=dim)
    if kind == "Conv":
        return nn.Sequential(MirroredConv2d(dim, dim, 3), nn.ReLU(), MirroredConv2d(dim, dim, 3))
    raise ValueError(f"conv_type {kind!r} is none of DWConv, Conv and None")


class Attention(nn.Module):
    """The sum of window attention and convolutions: (B, dim, H, W) to the same shape.

    Windows of a shifted layer begin half a window before the map. Incomplete windows are mirrored
    at the border: nothing is rolled or masked.
    """

    def __init__(
        self, dim: int, heads: int, window: int, *, shifted: bool, attends: bool, kind: str | None
    ) -> None:
        """Build the layers that are needed, under the published keys.

        Args:
            dim: Channels of the map.
            heads: Attention heads.
            window: Side of a window.
            shifted: Windows begin half a window before the map.
            attends: The block has attention; otherwise only convolutions.
            kind: Kind of the convolutions, "DWConv" or "Conv"; None for none.
        """
        super().__init__()
        if not attends and kind is None:
            raise ValueError("a block with neither attention nor convolutions does nothing")
        rows, columns = both_sides(window)
        self.window, self.attends = (rows, columns), attends
        self.before = (rows // 2, columns // 2) if shifted else (0, 0)
        if kind is not None:
            self.conv = _convolution(dim, kind)
        self.values = attends or kind == "DWConv"
        if self.values:
            self.V = nn.Conv2d(dim, dim, 1)
            self.proj = nn.Conv2d(dim, dim, 1)
        if attends:
            if heads < 1 or dim % heads:
                raise ValueError(f"{dim} channels are not a multiple of {heads} heads")
            self.QK = nn.Conv2d(dim, 2 * dim, 1)
            self.attn = BiasedWindows(
                WindowGeometry(
                    heads=heads,
                    head_dim=dim // heads,
                    value_dim=dim // heads,
                    window=(rows, columns),
                    shift=(0, 0),
                    scale=(dim // heads) ** -0.5,
                )
            )
        self.convolves = kind is not None

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for x."""
        if not self.values:
            convolved: Tensor = self.conv(x)
            return convolved
        values = self.V(x)
        y = self.conv(values) if self.convolves else None
        if self.attends:
            seen = self._attention(x, values)
            y = seen if y is None else seen + y
        out: Tensor = self.proj(y)
        return out

    def _attention(self, x: Tensor, values: Tensor) -> Tensor:
        packed = torch.cat([self.QK(x), values], 1)
        packed = pad_to_multiple(to_map(packed), self.window, self.before, first=1)
        return to_image(crop(self.attn(packed), x.shape[2], x.shape[3], self.before, first=1))


class _Mlp(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Conv2d(dim, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, dim, 1))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mlp(x)
        return y


class Block(nn.Module):
    """Attention after `WholeNorm`, or convolutions without a norm, and an MLP."""

    def __init__(self, dim: int, ratio: float, attention: Attention) -> None:
        """Build the block around its attention; ``ratio`` is hidden over outer width."""
        super().__init__()
        if attention.attends:
            self.norm1 = WholeNorm(dim)
        self.attn = attention
        self.mlp = _Mlp(dim, hidden_width(dim, ratio))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for x."""
        if self.attn.attends:
            normalized, gain, offset = self.norm1(x)
            x = x + (self.attn(normalized) * gain + offset)
        else:
            x = x + self.attn(x)
        y: Tensor = x + self.mlp(x)
        return y


class Halve(nn.Module):
    """A convolution that halves the sides of a map."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(inputs, outputs, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the map of half the sides."""
        y: Tensor = self.proj(x)
        return y


class Double(nn.Module):
    """A convolution and a pixel shuffle that double the sides of a map."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.proj = nn.Sequential(nn.Conv2d(inputs, 4 * outputs, 1), nn.PixelShuffle(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return the map of twice the sides."""
        y: Tensor = self.proj(x)
        return y
