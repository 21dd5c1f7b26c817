"""A small CSNLN, which compares every patch with every other one, for super-resolution."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from nystra.core.errors import NystraError
from nystra.core.option import option
from nystra.core.option_kinds import Number
from nystra.models.csnln.network import CSNLN, MEAN

from .data import Pair
from .enlarging import Enlargement

_COLORS = len(MEAN)
_SHOWN = 64  # side of a held-out input: the work grows with the square of its pixels
_NOISE = 0.2  # of the usual start weights
_BILINEAR = torch.tensor((0.0, 0.25, 0.75, 0.75, 0.25, 0.0))  # enlargement by 2, kernel of 6


@dataclass(frozen=True)
class EnlargingByCsnln(Enlargement):
    """The training of a small CSNLN x2 on bicubic reductions.

    Attributes:
        width: Channels of the maps, an even number.
        depth: How often the recurrent cell is used.
    """

    architecture: ClassVar[str] = "csnln"

    patch: int = option(Number(32, "side of a crop of the input, in pixels", 1))
    width: int = option(Number(32, "channels of the maps", _COLORS))
    depth: int = option(Number(2, "uses of the recurrent cell", 1))

    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""
        return {"scale": self.scale, "n_feats": self.width, "depth": self.depth}

    def check(self) -> None:
        """Check the settings against each other."""
        if self.scale != 2:
            raise NystraError(f"--scale {self.scale}: a csnln is trained for 2 here")
        if self.width % 2:
            raise NystraError(f"--width {self.width} must be even")

    def held_out(self, data: Path) -> list[Pair]:
        """Return the upper left corners of the first photographs below ``val/``."""
        large = _SHOWN * self.scale
        return [
            Pair(pair.large[:large, :large], pair.small[:_SHOWN, :_SHOWN])
            for pair in super().held_out(data)
        ]

    def network(self) -> CSNLN:
        """Return a network whose output begins near the bilinear enlargement.

        It has no skip around its cells. Every convolution begins as the identity plus noise,
        without noise in the first three channels, which carry the colors plus 1, so that no
        activation bends them. What the cross-scale estimate lacks is then added by the cell.
        """
        torch.manual_seed(self.seed)
        network = CSNLN(**self.hyper())
        attention = network.SEM.multi_source_projection.up_attention
        covering = attention.geometry.patch**2  # value patches that cover a pixel
        weights = dict(network.named_parameters())
        with torch.no_grad():
            for name, module in network.named_modules():
                if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) and "mean" not in name:
                    _pass_on(module)
            weights["head.0.0.bias"][:_COLORS] = 1.0
            weights["SEM.multi_source_projection.up_attention.conv_assembly.0.weight"].mul_(
                attention.geometry.divisor / covering
            )
            weights["SEM.multi_source_projection.encoder.body.2.weight"][:_COLORS] = 0.0
            weights["SEM.error_encode.1.weight"].fill_(1.0)  # what lacks may be negative
            weights["tail.0.weight"].zero_()
            for color in range(_COLORS):
                weights["tail.0.weight"][color, color :: self.width, 1, 1] = 1.0 / self.depth
            weights["tail.0.bias"].fill_(-1.0)
        return network


def _pass_on(module: nn.Conv2d | nn.ConvTranspose2d) -> None:
    """Let output channel i begin as input channel i: as it is, halved or enlarged by 2."""
    weight = module.weight
    weight.mul_(_NOISE)
    if module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.ConvTranspose2d):
        weight[:, :_COLORS] = 0.0
        taps = torch.outer(_BILINEAR, _BILINEAR)
    else:
        weight[:_COLORS] = 0.0
        side = module.kernel_size[0]
        middle = torch.zeros(side)
        middle[(side - 1) // 2 : side // 2 + 1] = 1.0 / module.stride[0]
        taps = torch.outer(middle, middle)
    for channel in range(min(weight.shape[:2])):
        weight[channel, channel] += taps
