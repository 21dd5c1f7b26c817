"""Small networks that remove noise from photographs: a Uformer, and one with global attention."""

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
from studies.tokens.restorer import PATCH, Restorer

from .by_uformer import ByUformer
from .data import ImageData, Pair, draw_batch, read_pairs
from .restoring import Restoring, psnr_of_error


@dataclass(frozen=True)
class OfNoise(Restoring):
    """A training on Gaussian noise, clipped and rounded to 8 bit.

    Attributes:
        sigma: Standard deviation of the noise, of values 0..255.
    """

    sigma: float = option(
        Number(25.0, "standard deviation of the noise, of values 0..255", 0, above=True)
    )

    def draw(
        self, examples: Sequence[Pair], step: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return crops with noise and without."""
        clean = draw_batch(examples, self.patch, self.batch, self.seed, step)[1]
        return with_noise(clean * 255.0, self.sigma, (self.seed, step)) / np.float32(255.0), clean

    def example(self, pair: Pair, number: int) -> ImageData:
        """Return the photograph with its own noise."""
        return with_noise(pair.large, self.sigma, (number,)).astype(np.uint8)


@dataclass(frozen=True)
class Denoising(OfNoise, ByUformer):
    """The training of a small Uformer."""


@dataclass(frozen=True)
class DenoisingByDit(OfNoise):
    """The training of a `Restorer`, held out on the middle of photographs.

    Attributes:
        width: Channels of a token.
        heads: Attention heads.
        blocks: Attentions.
    """

    architecture: ClassVar[str] = "dit"

    patch: int = option(Number(64, "side of a crop, in pixels", 1))
    width: int = option(Number(64, "channels of a token", 1))
    heads: int = option(Number(2, "attention heads", 1))
    blocks: int = option(Number(4, "attentions", 1))

    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""
        sizes = {"width": self.width, "heads": self.heads, "blocks": self.blocks}
        return {**sizes, "sigma": self.sigma}

    def check(self) -> None:
        """Check the settings against each other."""
        if self.patch % PATCH or self.width % (4 * self.heads):
            raise NystraError(
                f"--patch {self.patch} must be a multiple of {PATCH}, and --width {self.width} of "
                f"4 times --heads {self.heads}"
            )

    def network(self) -> Restorer:
        """Return a network whose attentions and MLPs start gated to nothing."""
        torch.manual_seed(self.seed)
        return Restorer(**self.hyper())

    def read(self, folder: Path, smallest: int, most: int | None = None) -> list[Pair]:
        """Read the photographs of a folder."""
        return read_pairs(folder, 1, smallest, most)

    def held_out(self, data: Path) -> list[Pair]:
        """Return the middle of the first photographs below ``val/``."""
        return [Pair(middle(pair.large), pair.small) for pair in super().held_out(data)]

    def psnr(self, output: Tensor, truth: Tensor) -> float:
        """Return the PSNR over all channels and pixels."""
        return psnr_of_error(output - truth)


def middle(image: ImageData, side: int = 128) -> ImageData:
    """Return the square of that side in the middle of an image (H, W, C)."""
    top, left = ((whole - side) // 2 for whole in image.shape[:2])
    return image[top : top + side, left : left + side]


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
