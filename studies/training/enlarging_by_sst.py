"""A small SST, whose windows are large, that enlarges photographs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from nystra.core.errors import NystraError
from nystra.core.option import option
from nystra.core.option_kinds import Number
from nystra.models.sst.network import SST

from .enlarging import Enlargement
from .settings import Counts


@dataclass(frozen=True)
class EnlargingBySst(Enlargement):
    """The training of a small SST on bicubic reductions.

    A crop holds the largest window; a picture smaller than one is mirrored.

    Attributes:
        windows: Side of the windows of each layer of a block.
        ranks: Of the position bias of each layer.
        blocks: Of the network, all alike.
        width: Channels of the map.
        heads: Attention heads of every layer.
    """

    architecture: ClassVar[str] = "sst"

    patch: int = option(Number(64, "side of a crop of the input, in pixels", 1))
    windows: tuple[int, ...] = option(Counts((16, 32, 64), "windows of the layers of a block"))
    ranks: tuple[int, ...] = option(Counts((16, 16, 16), "rank of each layer's position bias"))
    blocks: int = option(Number(2, "blocks of the network", 1))
    width: int = option(Number(32, "channels of the map", 1))
    heads: int = option(Number(2, "attention heads of every layer", 1))

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
                "would be trained on mirrored pictures alone"
            )

    def network(self) -> SST:
        """Return a network that starts close to the enlarged picture, which it is added to."""
        torch.manual_seed(self.seed)
        network = SST(**self.hyper())
        with torch.no_grad():
            for parameter in network.upsampler.parameters():
                parameter.mul_(0.1)
        return network
