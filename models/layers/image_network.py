"""SwinIR's outer layers, shared by networks built like it: image in, image out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .padding import crop, pad_to_multiple
from .swin import residual_convolution, to_image, to_map
from .window_sides import Sides

_MEAN = (0.4488, 0.4371, 0.4040)
_HEAD_WIDTH = 64
_LARGEST_SCALE = 64


class _PatchEmbed(nn.Module):
    def __init__(self, dim: int, norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()


def _shuffle_upsampler(scale: int, width: int) -> nn.Sequential:
    if scale == 3:
        return nn.Sequential(nn.Conv2d(width, 9 * width, 3, 1, 1), nn.PixelShuffle(3))
    if scale < 1 or scale & (scale - 1):
        raise ValueError(f"upscale {scale} is neither 3 nor a power of 2, as pixelshuffle needs")
    steps: list[nn.Module] = []
    for _ in range(scale.bit_length() - 1):
        steps += [nn.Conv2d(width, 4 * width, 3, 1, 1), nn.PixelShuffle(2)]
    return nn.Sequential(*steps)


class ImageNetwork(nn.Module):
    """An image through groups of blocks: (B, in_chans, H, W) to ``upscale`` times its sides.

    Any H and W >= 1: the image is mirrored up to a multiple of the window, and cropped back.
    """

    mean: Tensor
    absolute_pos_embed: Tensor

    def __init__(
        self,
        groups: Callable[[], Iterable[nn.Module]],
        *,
        dim: int,
        in_chans: int,
        window: Sides,
        size: Sides | None,
        upscale: int,
        upsampler: str,
        img_range: float,
        connection: str,
        patch_norm: bool,
        ape: bool,
    ) -> None:
        """Build the network around its groups.

        Args:
            groups: Builds the groups, which keep (B, H, W, dim).
            dim: Channels of the map.
            in_chans: Channels of input and output.
            window: The sides of the map are multiples of it.
            size: Size of the training images, if an absolute position embedding needs it.
            upscale: Output side over input side.
            upsampler: "pixelshuffle", "pixelshuffledirect", "nearest+conv" or "".
            img_range: The network works on (x - mean) * img_range.
            connection: The convolution before the skips, as in `residual_convolution`.
            patch_norm: A LayerNorm follows the first convolution.
            ape: Absolute position embedding; the padded input must then be ``size``.

        Raises:
            ValueError: Arguments that contradict each other.
        """
        super().__init__()
        self.upscale, self.upsampler, self.img_range = upscale, upsampler, float(img_range)
        self.window = window
        self.register_buffer(
            "mean",
            torch.tensor(_MEAN if in_chans == 3 else (0.0,)).view(1, -1, 1, 1),
            persistent=False,
        )
        self.conv_first = nn.Conv2d(in_chans, dim, 3, 1, 1)
        self.patch_embed = _PatchEmbed(dim, patch_norm)
        self.fixed_size = size if ape else None
        if ape:
            if size is None:
                raise ValueError("an absolute position embedding needs img_size")
            embedding = torch.zeros(1, size[0] * size[1], dim)
            self.absolute_pos_embed = nn.Parameter(nn.init.trunc_normal_(embedding, std=0.02))
        self.layers = nn.ModuleList(groups())
        self.norm = nn.LayerNorm(dim)
        self.conv_after_body = residual_convolution(dim, connection)
        self._build_head(dim, in_chans)

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
                "nearest+conv and ''"
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, in_chans, H, W), values 0..1."""
        height, width = x.shape[2], x.shape[3]
        x = (pad_to_multiple(x, self.window) - self.mean) * self.img_range
        shallow = self.conv_first(x)
        y = self.patch_embed.norm(to_map(shallow))
        if self.fixed_size is not None:
            y = y + self.absolute_pos_embed.view(1, *self.fixed_size, -1)
        for layer in self.layers:
            y = layer(y)
        features = self.conv_after_body(to_image(self.norm(y))) + shallow
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


def check_sizes(
    dim: int,
    depths: Sequence[int],
    heads: Sequence[int],
    upscale: int,
    mlp_ratio: float,
    img_range: float,
) -> None:
    """Raise ValueError for sizes that no network has, or that contradict each other."""
    if min(depths) < 1 or min(heads) < 1:
        raise ValueError(f"depths {list(depths)} and num_heads {list(heads)} must be at least 1")
    if any(dim % count for count in heads):
        raise ValueError(f"embed_dim {dim} is not a multiple of num_heads {list(heads)}")
    if not 1 <= upscale <= _LARGEST_SCALE:
        raise ValueError(f"upscale {upscale} is not within 1 to {_LARGEST_SCALE}")
    if mlp_ratio <= 0 or img_range == 0:
        raise ValueError(f"mlp_ratio {mlp_ratio} must be above 0, img_range {img_range} not 0")
