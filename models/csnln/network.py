"""CSNLN (Mei et al., 2020): super-resolution by cross-scale non-local attention, x2, x3 and x4.

State-dict compatible with the published checkpoints; the constructor's names are theirs. New:
``n_feats`` may be any even number (the published attention knows 128 channels only).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..geometry import PatchGeometry
from ..layers.padding import crop, pad_to_multiple
from ..sites import MapSite, PatchSite

MEAN = (0.4488, 0.4371, 0.4040)
"""Mean color that the published networks subtract."""

_SCALES = (2, 3, 4)
_PROJECTIONS = {2: (6, 2, 2), 3: (9, 3, 3), 4: (8, 4, 2)}  # kernel, stride, padding by factor


def _make_embedding(inputs: int, outputs: int, kernel: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.PReLU())


def _down(width: int, factor: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(width, width, *_PROJECTIONS[factor]), nn.PReLU())


def _up(width: int, factor: int) -> nn.Sequential:
    return nn.Sequential(nn.ConvTranspose2d(width, width, *_PROJECTIONS[factor]), nn.PReLU())


def shrink_bilinear(x: Tensor, factor: int) -> Tensor:
    """Return a map (B, C, H, W) shrunk by bilinear sampling at the centers, not antialiased.

    The center of a cell of ``factor`` x ``factor`` pixels is a pixel (odd factors), or lies
    between four. H and W are multiples of the factor.
    """
    low = (factor - 1) // 2
    taps = range(low, low + 2 - factor % 2)
    corners = [x[:, :, row::factor, column::factor] for row in taps for column in taps]
    return torch.stack(corners).mean(0)


class CrossScaleAttention(PatchSite):
    """A map (B, C, H, W) enlarged (B, C, s H, s W) from the patches of its own smaller copy.

    Source: Y. Mei et al., "Image Super-Resolution with Cross-Scale Non-Local Attention and
    Exhaustive Self-Exemplars Mining", 2020, section 3.1. H and W are multiples of s.
    """

    def __init__(
        self,
        channel: int = 128,
        reduction: int = 2,
        ksize: int = 3,
        scale: int = 3,
        softmax_scale: float = 10.0,
        average: bool = True,
    ) -> None:
        """Build the embeddings.

        Args:
            channel: Channels C.
            reduction: C over the channels that are compared.
            ksize: Side of the compared patches.
            scale: s.
            softmax_scale: Factor of the scores.
            average: softmax over the keys; otherwise the best key alone.
        """
        super().__init__(
            PatchGeometry(
                patch=ksize,
                scale=softmax_scale,
                key_norm="floor",
                key_epsilon=1e-4,
                value_patch=ksize * scale,
                value_stride=scale,
                divisor=6.0,
                hard=not average,
            )
        )
        self.factor = scale
        self.conv_match_1 = _make_embedding(channel, channel // reduction)
        self.conv_match_2 = _make_embedding(channel, channel // reduction)
        self.conv_assembly = _make_embedding(channel, channel)

    def forward(self, x: Tensor) -> Tensor:
        """Return the enlarged map."""
        key = self.conv_match_2(shrink_bilinear(x, self.factor))
        return self.attend(self.conv_match_1(x), key, self.conv_assembly(x))


class NonLocalAttention(MapSite):
    """Attention between all positions of a map (B, C, H, W), without a skip."""

    def __init__(self, channel: int = 128, reduction: int = 2) -> None:
        super().__init__(scale=1.0)
        self.conv_match1 = _make_embedding(channel, channel // reduction)
        self.conv_match2 = _make_embedding(channel, channel // reduction)
        self.conv_assembly = _make_embedding(channel, channel)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of x."""
        return self.attend(self.conv_match1(x), self.conv_match2(x), self.conv_assembly(x))


class ResidualBlock(nn.Module):
    """Two convolutions and a skip: (B, C, H, W) to the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, 1, 1), nn.PReLU(), nn.Conv2d(width, width, 3, 1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for x."""
        y: Tensor = x + self.body(x)
        return y


class MultiSourceProjection(nn.Module):
    """The fusion of in-scale and cross-scale attention: (B, C, H, W) to (B, C, s H, s W)."""

    def __init__(self, width: int, factor: int) -> None:
        super().__init__()
        self.up_attention = CrossScaleAttention(width, scale=factor)
        self.down_attention = NonLocalAttention(width)
        self.upsample = _up(width, factor)
        self.encoder = ResidualBlock(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the enlarged map."""
        in_scale = self.upsample(self.down_attention(x))
        fused: Tensor = in_scale + self.encoder(self.up_attention(x) - in_scale)
        return fused


class ExemplarMining(nn.Module):
    """The recurrent cell: a low-resolution state to the next one and a high-resolution estimate.

    Each enlargement is shrunk again, and what the state has lost is added to it (back-projection).
    """

    def __init__(self, width: int, scale: int) -> None:
        super().__init__()
        self.scale = scale
        factor = 2 if scale == 4 else scale
        self.multi_source_projection = MultiSourceProjection(width, factor)
        self.down_sample_1 = _down(width, factor)
        if scale != 4:
            self.down_sample_2 = _down(width, factor)
        self.error_encode = _up(width, factor)
        self.post_conv = _make_embedding(width, width, 3)
        if scale == 4:
            self.multi_source_projection_2 = MultiSourceProjection(width, factor)
            self.down_sample_3 = _down(width, 4)
            self.down_sample_4 = _down(width, 4)
            self.error_encode_2 = _up(width, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next state (B, C, H, W) and the estimate (B, C, scale H, scale W)."""
        large = self.multi_source_projection(x)
        large = large + self.error_encode(x - self.down_sample_1(large))
        if self.scale == 4:
            large = self.multi_source_projection_2(large)
            large = large + self.error_encode_2(x - self.down_sample_3(large))
            return self.post_conv(self.down_sample_4(large)), large
        return self.post_conv(self.down_sample_2(large)), large


def _mean_shift(colors: int, rgb_range: float, sign: float) -> nn.Conv2d:
    shift = nn.Conv2d(colors, colors, 1)
    mean = torch.tensor(MEAN) if colors == 3 else torch.zeros(colors)
    with torch.no_grad():
        shift.weight.copy_(torch.eye(colors).view(colors, colors, 1, 1))
        if shift.bias is not None:
            shift.bias.copy_(sign * rgb_range * mean)
    return shift


class CSNLN(nn.Module):
    """CSNLN: (B, n_colors, H, W) to (B, n_colors, scale H, scale W), any H and W >= 1.

    Images are mirrored inside up to a multiple of 2 (x2, x4) or 3 (x3).
    """

    def __init__(
        self,
        *,
        scale: int | Sequence[int] = 2,
        n_feats: int = 128,
        depth: int = 12,
        rgb_range: float = 1.0,
        n_colors: int = 3,
    ) -> None:
        """Build the network.

        Args:
            scale: 2, 3 or 4; the published form is a list of one.
            n_feats: Channels of the maps, even; the published ones have 128.
            depth: How often the cell is used; its weights are the same each time.
            rgb_range: Highest value the weights were trained for; images stay in 0..1.
            n_colors: Channels of input and output.

        Raises:
            ValueError: Another scale, an odd number of channels, or no step at all.
        """
        super().__init__()
        self.scale = scale if isinstance(scale, int) else int(scale[0])
        if self.scale not in _SCALES:
            raise ValueError(f"scale {self.scale} is none of 2, 3, 4")
        if n_feats < 2 or n_feats % 2 or depth < 1 or n_colors < 1:
            raise ValueError(
                f"n_feats {n_feats} must be even, depth {depth} and n_colors {n_colors} at least 1"
            )
        self.multiple = 3 if self.scale == 3 else 2
        self.depth, self.rgb_range = depth, float(rgb_range)
        self.sub_mean = _mean_shift(n_colors, rgb_range, -1.0)
        self.SEM = ExemplarMining(n_feats, self.scale)
        self.add_mean = _mean_shift(n_colors, rgb_range, 1.0)
        self.head = nn.Sequential(
            _make_embedding(n_colors, n_feats, 3), _make_embedding(n_feats, n_feats, 3)
        )
        self.tail = nn.Sequential(nn.Conv2d(n_feats * depth, n_colors, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the enlarged image for x (B, n_colors, H, W), values 0..1."""
        height, width = x.shape[2], x.shape[3]
        padded = pad_to_multiple(x, (self.multiple, self.multiple)) * self.rgb_range
        state = self.head(self.sub_mean(padded))
        estimates = []
        for _ in range(self.depth):
            state, estimate = self.SEM(state)
            estimates.append(estimate)
        enlarged = self.add_mean(self.tail(torch.cat(estimates, 1))) / self.rgb_range
        return crop(enlarged, height * self.scale, width * self.scale)
