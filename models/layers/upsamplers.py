"""The upsamplers of SST and ESC: (map, image) to the image."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

UPSAMPLERS = ("pixelshuffle_direct", "pixelshuffle", "nn+conv")


def enlarge(image: Tensor, scale: int) -> Tensor:
    """Return an image (B, C, H, W) whose pixels are ``scale`` x ``scale`` each."""
    return F.interpolate(image, scale_factor=float(scale), mode="nearest")


class DirectUpsampler(nn.Module):
    """One convolution, added to the enlarged image."""

    def __init__(self, dim: int, scale: int) -> None:
        super().__init__()
        self.scale = scale
        self.up_conv = nn.Conv2d(dim, 3 * scale**2, 3, 1, 1)

    def forward(self, x: Tensor, image: Tensor) -> Tensor:
        """Return the image of a map (B, dim, H, W)."""
        return F.pixel_shuffle(self.up_conv(x), self.scale) + enlarge(image, self.scale)


class ShuffleUpsampler(nn.Module):
    """Convolutions before and after one pixel shuffle, added to the enlarged image."""

    def __init__(self, dim: int, middle: int, scale: int) -> None:
        super().__init__()
        self.scale = scale
        self.feature_conv = nn.Conv2d(dim, middle, 3, 1, 1)
        self.up_conv = nn.Conv2d(middle, middle * scale**2, 3, 1, 1)
        self.final_conv = nn.Conv2d(middle, 3, 3, 1, 1)

    def forward(self, x: Tensor, image: Tensor) -> Tensor:
        """Return the image of a map (B, dim, H, W)."""
        y = self.up_conv(F.leaky_relu(self.feature_conv(x), 0.1))
        added: Tensor = self.final_conv(F.pixel_shuffle(y, self.scale))
        return added + enlarge(image, self.scale)


class NearestUpsampler(nn.Module):
    """The map, to which features of the image are added, enlarged between convolutions."""

    def __init__(self, dim: int, middle: int, scale: int) -> None:
        """Build the convolutions; ``middle`` channels are between them.

        Raises:
            ValueError: The scale is none of 2, 3 and 4.
        """
        super().__init__()
        if scale not in (2, 3, 4):
            raise ValueError(f"upscaling_factor {scale} of nn+conv is none of 2, 3 and 4")
        self.f_img = nn.Sequential(
            nn.Conv2d(3, dim, 1),
            nn.Conv2d(dim, dim, 7, 1, 3),
            nn.LeakyReLU(0.1),
            nn.Conv2d(dim, dim, 1),
        )
        steps: list[nn.Module] = [nn.Conv2d(dim, middle, 3, 1, 1), nn.LeakyReLU(0.1)]
        for factor in (2, 2) if scale == 4 else (scale,):
            steps += [
                nn.Upsample(scale_factor=float(factor)),
                nn.Conv2d(middle, middle, 3, 1, 1),
                nn.LeakyReLU(0.1),
            ]
        self.f = nn.Sequential(*steps, nn.Conv2d(middle, 3, 3, 1, 1))

    def forward(self, x: Tensor, image: Tensor) -> Tensor:
        """Return the image of a map (B, dim, H, W)."""
        y: Tensor = self.f(x + self.f_img(image))
        return y


def upsampler(kind: str, dim: int, middle: int, scale: int) -> nn.Module:
    """Return the upsampler of a published name.

    Args:
        kind: One of `UPSAMPLERS`.
        dim: Channels of the map.
        middle: Channels between the convolutions, where there are several.
        scale: Output side over input side.

    Raises:
        ValueError: There is no such upsampler, or not of that scale.
    """
    if kind == "pixelshuffle_direct":
        return DirectUpsampler(dim, scale)
    if kind == "pixelshuffle":
        return ShuffleUpsampler(dim, middle, scale)
    if kind == "nn+conv":
        return NearestUpsampler(dim, middle, scale)
    raise ValueError(f"upsampler_type {kind!r} is none of {', '.join(UPSAMPLERS)}")
