"""The color space of CIDNet, HVI: hue on a disk whose radius is smaller for dark pixels.

Published code assigns to masked pixels, and stores the density of the last image for the inverse.
Here the same values are selected from maps, and the density is the weight.
"""

from __future__ import annotations

from math import pi
from typing import Any

import torch
from torch import Tensor, nn

_EPS = 1e-8


class Colours(nn.Module):
    """Converts images (B, 3, H, W) from RGB to HVI and back."""

    def __init__(self, own: Any) -> None:
        super().__init__()
        self.density_k = own.density_k
        self.saturate = 1.3 if own.gated else 1.0
        self.brighten = own.alpha if own.gated2 else 1.0

    def HVIT(self, img: Tensor) -> Tensor:  # noqa: N802 - as the network calls it
        """Return an RGB image (B, 3, H, W), values in 0..1, in HVI."""
        red, green, blue = img.unbind(1)
        value, minimum = img.amax(1), img.amin(1)
        spread = value - minimum + _EPS
        hue = torch.where(blue == value, 4.0 + (red - green) / spread, torch.zeros_like(value))
        hue = torch.where(green == value, 2.0 + (blue - red) / spread, hue)
        hue = torch.where(red == value, ((green - blue) / spread) % 6, hue)
        hue = torch.where(minimum == value, torch.zeros_like(hue), hue) / 6.0
        saturation = (value - minimum) / (value + _EPS)
        saturation = torch.where(value == 0, torch.zeros_like(value), saturation)
        radius = self._sensitivity(value) * saturation
        angle = 2.0 * pi * hue
        return torch.stack((radius * angle.cos(), radius * angle.sin(), value), dim=1)

    def PHVIT(self, img: Tensor) -> Tensor:  # noqa: N802
        """Return an HVI image (B, 3, H, W) in RGB."""
        across, along = img[:, 0].clamp(-1, 1), img[:, 1].clamp(-1, 1)
        value = img[:, 2].clamp(0, 1)
        sensitivity = self._sensitivity(value) + _EPS
        across, along = (across / sensitivity).clamp(-1, 1), (along / sensitivity).clamp(-1, 1)
        hue = (torch.atan2(along, across) / (2 * pi)) % 1
        saturation = (across**2 + along**2).sqrt() * self.saturate
        saturation = saturation.clamp(0, 1)
        sextant = torch.floor(hue * 6.0)
        part = hue * 6.0 - sextant
        low = value * (1.0 - saturation)
        falling = value * (1.0 - part * saturation)
        rising = value * (1.0 - (1.0 - part) * saturation)
        channels = (
            (value, falling, low, low, rising, value),
            (rising, value, value, falling, low, low),
            (low, low, rising, value, value, falling),
        )
        return torch.stack([_choose(sextant, maps) for maps in channels], dim=1) * self.brighten

    def _sensitivity(self, value: Tensor) -> Tensor:
        return ((value * 0.5 * pi).sin() + _EPS).pow(self.density_k)


def _choose(sextant: Tensor, maps: tuple[Tensor, ...]) -> Tensor:
    chosen = torch.zeros_like(sextant)
    for number, values in enumerate(maps):
        chosen = torch.where(sextant == number, values, chosen)
    return chosen


def adapt(own: Any, _: nn.Module) -> Colours:
    """Return an equivalent module that selects values from maps."""
    return Colours(own)
