"""The common part of small Uformers that restore photographs at their own size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from nystra.core.errors import NystraError
from nystra.core.option import option
from nystra.core.option_kinds import Number
from nystra.models.uformer.network import Uformer

from .data import Pair, read_pairs
from .restoring import Restoring, psnr_of_error
from .settings import Counts


@dataclass(frozen=True)
class ByUformer(Restoring):
    """The training of a small Uformer.

    Attributes:
        window: Side of the attention window.
        width: Channels of the first map.
        depths: Blocks of each stage.
        heads: Attention heads of each stage.
    """

    architecture: ClassVar[str] = "uformer"
    stored: ClassVar[torch.dtype] = torch.float16

    batch: int = option(Number(2, "crops a step", 1))
    patch: int = option(Number(128, "side of a crop, in pixels", 1))
    window: int = option(Number(16, "side of the attention window", 1))
    width: int = option(Number(8, "channels of the first map", 1))
    depths: tuple[int, ...] = option(Counts((1, 1, 2, 1, 1, 1, 2, 1, 1), "blocks of each stage"))
    heads: tuple[int, ...] = option(Counts((1, 1, 2, 2, 4, 4, 2, 2, 1), "heads of each stage"))

    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""
        return {
            "img_size": self.patch,
            "window_size": self.window,
            "embed_dim": self.width,
            "depths": list(self.depths),
            "num_heads": list(self.heads),
            "mlp_ratio": 2.0,
            "modulator": True,
        }

    def check(self) -> None:
        """Check the settings against each other."""
        if self.patch % (8 * self.window):
            raise NystraError(
                f"--patch {self.patch} must be a multiple of 8 times --window {self.window}"
            )

    def network(self) -> Uformer:
        """Return a network that starts as the identity: its last convolution is zero."""
        torch.manual_seed(self.seed)
        network = Uformer(**self.hyper())
        for parameter in network.output_proj.parameters():
            torch.nn.init.zeros_(parameter)
        return network

    def read(self, folder: Path, smallest: int, most: int | None = None) -> list[Pair]:
        """Read the photographs of a folder."""
        return read_pairs(folder, 1, smallest, most)

    def psnr(self, output: Tensor, truth: Tensor) -> float:
        """Return the PSNR over all channels and pixels."""
        return psnr_of_error(output - truth)
