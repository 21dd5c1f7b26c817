"""A small Uformer that removes noise from photographs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nystra.core.errors import NystraError
from nystra.core.option import option
from nystra.core.option_kinds import Number
from nystra.models.uformer.network import Uformer

from .data import ImageData, Pair, draw_batch, read_pairs
from .restoring import Restoring, psnr_of_error
from .settings import Counts


@dataclass(frozen=True)
class Denoising(Restoring):
    """The training of a small Uformer on Gaussian noise, clipped and rounded to 8 bit.

    Attributes:
        sigma: Standard deviation of the noise, of values 0..255.
        window: Side of the attention window.
        width: Channels of the first map.
        depths: Blocks of each stage.
        heads: Attention heads of each stage.
    """

    architecture: ClassVar[str] = "uformer"
    stored: ClassVar[torch.dtype] = torch.float16

    batch: int = option(Number(2, "crops a step", 1))
    patch: int = option(Number(128, "side of a crop, in pixels", 1))
    sigma: float = option(
        Number(25.0, "standard deviation of the noise, of values 0..255", 0, above=True)
    )
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

    def draw(
        self, examples: Sequence[Pair], step: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return crops with noise and without."""
        clean = draw_batch(examples, self.patch, self.batch, self.seed, step)[1]
        return with_noise(clean * 255.0, self.sigma, (self.seed, step)) / np.float32(255.0), clean

    def example(self, pair: Pair, number: int) -> ImageData:
        """Return the photograph with its own noise."""
        return with_noise(pair.large, self.sigma, (number,)).astype(np.uint8)

    def psnr(self, output: Tensor, truth: Tensor) -> float:
        """Return the PSNR over all channels and pixels."""
        return psnr_of_error(output - truth)


def with_noise(
    values: ImageData | NDArray[np.float32], sigma: float, seed: tuple[int, ...]
) -> NDArray[np.float32]:
    """Add Gaussian noise to values 0..255, rounded and clipped as in an 8-bit file.

    Args:
        values: 0..255, any shape.
        sigma: Standard deviation of the noise.
        seed: Of the noise; a stream of its own beside that of the crops.

    Returns:
        Whole numbers 0..255, shaped as ``values``.
    """
    generator = np.random.default_rng([*seed, 1])
    noise = generator.standard_normal(values.shape, np.float32) * np.float32(sigma)
    return np.clip(np.rint(values + noise), 0, 255).astype(np.float32)
