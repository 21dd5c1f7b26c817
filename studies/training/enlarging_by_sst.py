"""A small SST, with large windows, for super-resolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from nystra.core.errors import NystraError
from nystra.core.option import option
from nystra.core.option_kinds import Number, Switch
from nystra.models.geometry import WindowGeometry
from nystra.models.sites import WindowSite, exact_windows
from nystra.models.sst.network import SST

from .enlarging import Enlargement
from .settings import Counts

_LARGE = 1024  # tokens of a window: smaller ones take longer in bfloat16 than in float32


@dataclass(frozen=True)
class EnlargingBySst(Enlargement):
    """The training of a small SST on bicubic reductions.

    A crop holds the largest window; an image smaller than one is mirrored.

    Attributes:
        windows: Side of the windows of each layer of a block.
        ranks: Of the position bias of each layer.
        blocks: Of the network, all alike.
        width: Channels of the map.
        heads: Attention heads of every layer.
        bfloat16: The attention of large windows rounds its operands, as the published code does.
    """

    architecture: ClassVar[str] = "sst"

    patch: int = option(Number(64, "side of a crop of the input, in pixels", 1))
    windows: tuple[int, ...] = option(Counts((16, 32, 64), "windows of the layers of a block"))
    ranks: tuple[int, ...] = option(Counts((16, 16, 16), "rank of each layer's position bias"))
    blocks: int = option(Number(2, "blocks of the network", 1))
    width: int = option(Number(32, "channels of the map", 1))
    heads: int = option(Number(2, "attention heads of every layer", 1))
    bfloat16: bool = option(Switch("attention of large windows in bfloat16", default=False))

    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""
        return {
            "dim": self.width,
            "window_sizes": list(self.windows),
            "num_heads": [self.heads] * len(self.windows),
            "ranks": list(self.ranks),
            "n_blocks": self.blocks,
            "exp_ratio": 1.5,
            "rib_hidden_dim": 32,
            "rib_n_freqs": 10,
            "upscaling_factor": self.scale,
            "upsampler_type": "pixelshuffle_direct",
            "gate_type": "DWC",
        }

    def check(self) -> None:
        """Check the settings against each other."""
        if self.width % self.heads:
            raise NystraError(f"--width {self.width} must be a multiple of --heads {self.heads}")
        if len(self.ranks) != len(self.windows):
            raise NystraError(
                f"--ranks has {len(self.ranks)} numbers, --windows {len(self.windows)}: "
                "each layer of a block has one of both"
            )
        if self.patch < max(self.windows):
            raise NystraError(
                f"--patch {self.patch} is below the largest of --windows, {max(self.windows)}: it "
                "would be trained on mirrored images alone"
            )

    def network(self) -> SST:
        """Return a network that starts close to the upscaled image, which its output includes."""
        torch.manual_seed(self.seed)
        network = SST(**self.hyper())
        with torch.no_grad():
            for parameter in network.upsampler.parameters():
                parameter.mul_(0.1)
        if self.bfloat16:
            for site in network.modules():
                if isinstance(site, WindowSite) and site.geometry.tokens >= _LARGE:
                    site.implementation = _rounded_windows
        return network


def _rounded_windows(qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
    """Return exact attention of operands in bfloat16, in the type of qkv."""
    return exact_windows(qkv.bfloat16(), bias_table, geometry).to(qkv.dtype)
