"""A small Uformer that removes motion blur from photographs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nystra.core.option import option
from nystra.core.option_kinds import Number

from .by_uformer import ByUformer
from .data import ImageData, Pair, draw_batch

_SHORTEST = 5.0  # pixels that a camera moves
_MOST_BEND = 0.25  # of the path, in lengths
_SAMPLES = 8  # of the path, a pixel


@dataclass(frozen=True)
class Deblurring(ByUformer):
    """The training of a small Uformer on photographs of a moving camera, rounded to 8 bit.

    Attributes:
        motion: Longest path of the camera, in pixels.
    """

    motion: int = option(Number(15, "longest path of the camera, in pixels", int(_SHORTEST)))

    def draw(
        self, examples: Sequence[Pair], step: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return crops with blur and without; each moves along its own path."""
        sharp = draw_batch(examples, self.patch, self.batch, self.seed, step)[1]
        crops = [
            with_motion(crop.transpose(1, 2, 0) * 255.0, self.motion, (self.seed, step, number))
            for number, crop in enumerate(sharp)
        ]
        return np.stack(crops).transpose(0, 3, 1, 2) / np.float32(255.0), sharp

    def example(self, pair: Pair, number: int) -> ImageData:
        """Return the photograph with its own blur."""
        return with_motion(pair.large, self.motion, (number,)).astype(np.uint8)


def motion_kernel(length: float, angle: float, bend: float) -> NDArray[np.float64]:
    """Return what a point becomes along a path: (n, n), odd, of sum 1.

    Args:
        length: Of the chord of the path, a parabola, in pixels.
        angle: Of the chord, in radians.
        bend: Height of the parabola, in lengths.
    """
    t = np.linspace(-0.5, 0.5, max(2, round(_SAMPLES * length)))
    along, across = length * t, length * bend * (1 - 4 * t**2)
    y = np.sin(angle) * along + np.cos(angle) * across
    x = np.cos(angle) * along - np.sin(angle) * across
    places = np.stack((y, x)) - np.stack((y, x)).mean(1, keepdims=True)
    radius = int(np.ceil(np.abs(places).max())) + 1
    grid = np.arange(-radius, radius + 1)[:, None]
    rows, columns = (np.clip(1 - np.abs(grid - place), 0, None) for place in places)
    spread = rows @ columns.T
    kernel: NDArray[np.float64] = spread / spread.sum()
    return kernel


def with_motion(
    values: ImageData | NDArray[np.float32], longest: int, seed: tuple[int, ...]
) -> NDArray[np.float32]:
    """Blur an image along a random path, rounded as in an 8-bit file; borders are mirrored.

    Args:
        values: 0..255, (H, W, 3).
        longest: Longest path in pixels; the shortest is 5.
        seed: Of the path.

    Returns:
        Whole numbers 0..255, shaped as ``values``.
    """
    generator = np.random.default_rng([*seed, 2])
    length = generator.uniform(_SHORTEST, longest)
    kernel = motion_kernel(
        length, generator.uniform(0, np.pi), generator.uniform(-_MOST_BEND, _MOST_BEND)
    )
    radius, (height, width) = kernel.shape[0] // 2, values.shape[:2]
    framed = np.pad(
        values.astype(np.float32), ((radius, radius), (radius, radius), (0, 0)), "symmetric"
    )
    total = np.zeros(values.shape, np.float32)
    for y, x in np.argwhere(kernel):
        total += np.float32(kernel[y, x]) * framed[y : y + height, x : x + width]
    return np.clip(np.rint(total), 0, 255)
