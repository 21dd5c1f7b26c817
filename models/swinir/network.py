"""SwinIR (Liang et al., 2021), state-dict compatible with the published checkpoints.

The constructor's names are those of the published configurations. Two arguments are new:
``position_bias=False`` and ``mask=False`` give the form that PnP-Nystra runs at large windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..geometry import WindowGeometry
from ..mlp import Mlp
from ..padding import crop, pad_to_multiple
from ..sites import WindowSite
from ..window_sides import both_sides, position_bias_table

_MEAN = (0.4488, 0.4371, 0.4040)
_HEAD_WIDTH = 64
_LARGEST_SCALE = 64


class WindowAttention(WindowSite):
    """Projections around window attention: (B, H, W, dim) to the same."""

    def __init__(
        self,
        dim: int,
        geometry: WindowGeometry,
        *,
        qkv_bias: bool = True,
        position_bias: bool = True,
    ) -> None:
        """Build the projections and, with ``position_bias``, the table of position biases."""
        super().__init__(geometry)
        table = position_bias_table(geometry) if position_bias else None
        self.register_parameter("relative_position_bias_table", table)
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of the map x (B, H, W, dim)."""
        projected: Tensor = self.proj(self.attend(self.qkv(x)))
        return projected


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and a skip: (B, *sides, dim) to the same."""

    def __init__(self, dim: int, hidden: int, attention: nn.Module) -> None:
        """Build the block around its attention."""
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = attention
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for the map x."""
        x = x + self.attn(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


def _residual_convolution(dim: int, connection: str) -> nn.Module:
    if connection == "1conv":
        return nn.Conv2d(dim, dim, 3, 1, 1)
    return nn.Sequential(
        nn.Conv2d(dim, dim // 4, 3, 1, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(dim // 4, dim // 4, 1, 1, 0),
        nn.LeakyReLU(0.2),
        nn.Conv2d(dim // 4, dim, 3, 1, 1),
    )


class _Blocks(nn.Module):
    """Holds the blocks under the published key ``residual_group.blocks``."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)


class ResidualGroup(nn.Module):
    """Blocks, a convolution and a skip: (B, H, W, dim) to the same."""

    def __init__(self, blocks: Sequence[Block], dim: int, connection: str) -> None:
        """Build the group around its blocks."""
        super().__init__()
        self.residual_group = _Blocks(blocks)
        self.conv = _residual_convolution(dim, connection)

    def forward(self, x: Tensor) -> Tensor:
        """Return the group's output for the map x."""
        y = x
        for block in self.residual_group.blocks:
            y = block(y)
        return x + _to_map(self.conv(_to_image(y)))


class _PatchEmbed(nn.Module):
    def __init__(self, dim: int, norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()


def _to_image(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _to_map(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


def _shuffle_upsampler(scale: int, width: int) -> nn.Sequential:
    if scale == 3:
        return nn.Sequential(nn.Conv2d(width, 9 * width, 3, 1, 1), nn.PixelShuffle(3))
    if scale < 1 or scale & (scale - 1):
        raise ValueError(f"pixelshuffle doubles or triples: upscale {scale} is neither 3 nor 2^n")
    steps: list[nn.Module] = []
    for _ in range(scale.bit_length() - 1):
        steps += [nn.Conv2d(width, 4 * width, 3, 1, 1), nn.PixelShuffle(2)]
    return nn.Sequential(*steps)


class SwinIR(nn.Module):
    """SwinIR: (B, in_chans, H, W) to (B, in_chans, H * upscale, W * upscale), any H and W >= 1.

    Source: J. Liang et al., "SwinIR: Image Restoration Using Swin Transformer", 2021.
    """

    mean: Tensor
    absolute_pos_embed: Tensor

    def __init__(
        self,
        *,
        upscale: int = 1,
        in_chans: int = 3,
        img_size: int | tuple[int, int] | None = None,
        window_size: int | tuple[int, int] = 8,
        img_range: float = 1.0,
        depths: Sequence[int] = (6, 6, 6, 6),
        embed_dim: int = 60,
        num_heads: int | Sequence[int] = 6,
        mlp_ratio: float = 2.0,
        upsampler: str = "",
        resi_connection: str = "1conv",
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        patch_norm: bool = True,
        ape: bool = False,
        position_bias: bool = True,
        mask: bool = True,
    ) -> None:
        """Build the network.

        Args:
            upscale: Output side over input side.
            in_chans: Channels of input and output.
            img_size: Side or (rows, columns) of the training pictures. A side not above the
                window shrinks the window to it and removes every shift, as published;
                None leaves window and shift alone.
            window_size: Window, a side or rows and columns.
            img_range: The network works on (x - mean) * img_range.
            depths: Blocks of each residual group.
            embed_dim: Channels of the map.
            num_heads: Heads of each residual group; one number is of all.
            mlp_ratio: Hidden over outer width of the MLP.
            upsampler: "pixelshuffle", "pixelshuffledirect", "nearest+conv" or "".
            resi_connection: "1conv" or "3conv".
            qkv_bias: The qkv projection has a bias.
            qk_scale: Factor of the scores; None is head size ** -0.5.
            patch_norm: A LayerNorm follows the first convolution.
            ape: Absolute position embedding; the padded input must then be img_size.
            position_bias: Attention adds a relative position bias.
            mask: Tokens that the cyclic shift made neighbours do not see each other.

        Raises:
            ValueError: Arguments that contradict each other.
        """
        super().__init__()
        heads_of = _each_group(num_heads, len(depths))
        _check_sizes(embed_dim, depths, heads_of, upscale, mlp_ratio, img_range)
        window = both_sides(window_size)
        size = None if img_size is None else both_sides(img_size)
        shifted = size is None or min(size) > min(window)
        if size is not None and not shifted:
            window = (min(size), min(size))
        self.upscale, self.upsampler, self.img_range = upscale, upsampler, float(img_range)
        self.window = window
        self.register_buffer(
            "mean",
            torch.tensor(_MEAN if in_chans == 3 else (0.0,)).view(1, -1, 1, 1),
            persistent=False,
        )
        self.conv_first = nn.Conv2d(in_chans, embed_dim, 3, 1, 1)
        self.patch_embed = _PatchEmbed(embed_dim, patch_norm)
        self.fixed_size = size if ape else None
        if ape:
            if size is None:
                raise ValueError("an absolute position embedding needs img_size")
            embedding = torch.zeros(1, size[0] * size[1], embed_dim)
            self.absolute_pos_embed = nn.Parameter(nn.init.trunc_normal_(embedding, std=0.02))

        def block(heads: int, odd: bool) -> Block:
            head_dim = embed_dim // heads
            shift = (window[0] // 2, window[1] // 2) if odd and shifted else (0, 0)
            geometry = WindowGeometry(
                heads=heads,
                head_dim=head_dim,
                value_dim=head_dim,
                window=window,
                shift=shift,
                masked=mask and shift != (0, 0),
                scale=head_dim**-0.5 if qk_scale is None else qk_scale,
            )
            attention = WindowAttention(
                embed_dim, geometry, qkv_bias=qkv_bias, position_bias=position_bias
            )
            return Block(embed_dim, int(embed_dim * mlp_ratio), attention)

        self.layers = nn.ModuleList(
            ResidualGroup(
                [block(heads, index % 2 == 1) for index in range(depth)], embed_dim, resi_connection
            )
            for depth, heads in zip(depths, heads_of, strict=True)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.conv_after_body = _residual_convolution(embed_dim, resi_connection)
        self._build_head(embed_dim, in_chans)

    def _build_head(self, dim: int, channels: int) -> None:
        def before() -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(dim, _HEAD_WIDTH, 3, 1, 1), nn.LeakyReLU(0.01))

        def convolution(inputs: int = _HEAD_WIDTH, outputs: int = _HEAD_WIDTH) -> nn.Conv2d:
            return nn.Conv2d(inputs, outputs, 3, 1, 1)

        if self.upsampler == "pixelshuffle":
            self.conv_before_upsample = before()
            self.upsample = _shuffle_upsampler(self.upscale, _HEAD_WIDTH)
            self.conv_last = convolution(outputs=channels)
        elif self.upsampler == "pixelshuffledirect":
            self.upsample = nn.Sequential(
                convolution(dim, self.upscale**2 * channels), nn.PixelShuffle(self.upscale)
            )
        elif self.upsampler == "nearest+conv":
            self.conv_before_upsample = before()
            self.conv_up1 = convolution()
            if self.upscale == 4:
                self.conv_up2 = convolution()
            self.conv_hr = convolution()
            self.conv_last = convolution(outputs=channels)
        elif self.upsampler == "":
            self.conv_last = convolution(dim, channels)
        else:
            raise ValueError(
                f"upsampler {self.upsampler!r} is none of pixelshuffle, pixelshuffledirect, "
                "nearest+conv and the empty one"
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored picture for x (B, in_chans, H, W), values 0..1."""
        height, width = x.shape[2], x.shape[3]
        x = (pad_to_multiple(x, self.window) - self.mean) * self.img_range
        shallow = self.conv_first(x)
        y = self.patch_embed.norm(_to_map(shallow))
        if self.fixed_size is not None:
            y = y + self.absolute_pos_embed.view(1, *self.fixed_size, -1)
        for layer in self.layers:
            y = layer(y)
        features = self.conv_after_body(_to_image(self.norm(y))) + shallow
        restored = self._head(x, features) / self.img_range + self.mean
        return crop(restored, height * self.upscale, width * self.upscale)

    def _head(self, x: Tensor, features: Tensor) -> Tensor:
        y: Any = features
        if self.upsampler == "pixelshuffle":
            y = self.conv_last(self.upsample(self.conv_before_upsample(y)))
        elif self.upsampler == "pixelshuffledirect":
            y = self.upsample(y)
        elif self.upsampler == "nearest+conv":
            y = self.conv_before_upsample(y)
            y = F.leaky_relu(self.conv_up1(F.interpolate(y, scale_factor=2.0)), 0.2)
            if self.upscale == 4:
                y = F.leaky_relu(self.conv_up2(F.interpolate(y, scale_factor=2.0)), 0.2)
            y = self.conv_last(F.leaky_relu(self.conv_hr(y), 0.2))
        else:
            y = x + self.conv_last(y)
        result: Tensor = y
        return result


def _each_group(heads: int | Sequence[int], groups: int) -> list[int]:
    each = [heads] if isinstance(heads, int) else list(heads)
    if len(each) not in (1, groups):
        raise ValueError(f"depths has {groups} groups, num_heads {len(each)}")
    return each * groups if len(each) == 1 else each


def _check_sizes(
    dim: int,
    depths: Sequence[int],
    heads: Sequence[int],
    upscale: int,
    mlp_ratio: float,
    img_range: float,
) -> None:
    if min(depths) < 1 or min(heads) < 1:
        raise ValueError(f"depths {list(depths)} and num_heads {list(heads)} must be at least 1")
    if any(dim % count for count in heads):
        raise ValueError(f"embed_dim {dim} is no multiple of num_heads {list(heads)}")
    if not 1 <= upscale <= _LARGEST_SCALE:
        raise ValueError(f"upscale {upscale} is not within 1 to {_LARGEST_SCALE}")
    if mlp_ratio <= 0 or img_range == 0:
        raise ValueError(f"mlp_ratio {mlp_ratio} must be above 0, img_range {img_range} not 0")
