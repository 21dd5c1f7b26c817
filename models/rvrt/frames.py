"""Layers that compute on each frame by itself: (B, C, H, W), the frames among the batch."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.1
"""Negative slope of every LeakyReLU in RVRT."""

_QUARTER = (-0.09375, 0.59375, 0.59375, -0.09375)
"""Cubic weights (a = -0.75) of four pixels for the point halfway between the second and third."""


class FrameConv(nn.Conv2d):
    """A convolution of frames, whose weight is that of a 3-D one over a single frame."""

    def __init__(
        self, inputs: int, outputs: int, side: int = 3, *, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(inputs, outputs, side, stride, side // 2, groups=groups)
        self.weight = nn.Parameter(self.weight.detach().unsqueeze(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution of x (B, inputs, H, W)."""
        weight = self.weight.squeeze(2)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, groups=self.groups)


def upsampler(scale: int, width: int) -> nn.Sequential:
    """Return what enlarges (B, width, H, W) by 3 or by a power of 2.

    Raises:
        ValueError: Another scale.
    """
    factor = 3 if scale == 3 else 2
    count = 1 if scale == 3 else scale.bit_length() - 1
    if factor**count != scale or not count:
        raise ValueError(f"an upsampler by {scale}: expected 3 or 2, 4, 8, ...")
    layers: list[nn.Module] = []
    for _ in range(count):
        layers += [FrameConv(width, factor**2 * width), nn.Identity(), nn.PixelShuffle(factor)]
        layers += [nn.Identity(), nn.LeakyReLU(SLOPE)]  # published keys count these places
    return nn.Sequential(*layers, FrameConv(width, width))


def quarter(image: Tensor) -> Tensor:
    """Return an image (B, C, H, W) at a quarter of its sides, bicubic without antialiasing.

    Every pixel lies in the middle of four rows and columns, so that it is a convolution.
    """
    channels = image.shape[1]
    row = image.new_tensor(_QUARTER)
    kernel = (row.unsqueeze(1) * row).expand(channels, 1, 4, 4)
    return F.conv2d(image, kernel, stride=4, groups=channels)
