"""A small Uformer that removes noise from photographs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nystra.core.option import option
from nystra.core.option_kinds import Number

from .by_uformer import ByUformer
from .data import ImageData, Pair, draw_batch


@dataclass(frozen=True)
class Denoising(ByUformer):
    """The training of a small Uformer on Gaussian noise, clipped and rounded to 8 bit.

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
