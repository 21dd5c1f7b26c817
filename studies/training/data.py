"""Pairs of small and large images for training: photographs and their bicubic reductions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nystra.core.errors import NystraError

ImageData = NDArray[np.uint8]

_SUFFIXES = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp"}


@dataclass(frozen=True)
class Pair:
    """A photograph and its reduction.

    Attributes:
        large: uint8 (s H, s W, 3), RGB.
        small: uint8 (H, W, 3).
    """

    large: ImageData
    small: ImageData


def cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cubic convolution kernel with a = -0.5 at x.

    Source: R. Keys, "Cubic convolution interpolation for digital image processing", 1981, eq. 15.
    """
    x = np.abs(x)
    near = 1.5 * x**3 - 2.5 * x**2 + 1.0
    far = -0.5 * x**3 + 2.5 * x**2 - 4.0 * x + 2.0
    return np.where(x <= 1.0, near, np.where(x < 2.0, far, 0.0))


@functools.lru_cache(maxsize=64)
def _reduction(size: int, factor: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return samples, mirrored at the ends, and weights of each output (size // factor, taps)."""
    center = (np.arange(size // factor) + 0.5) * factor - 0.5
    first = np.floor(center - 2.0 * factor).astype(np.int64)
    taps = first[:, None] + np.arange(4 * factor + 2)
    weights = cubic((center[:, None] - taps) / factor)
    weights /= weights.sum(axis=1, keepdims=True)
    around = taps % (2 * size)
    return np.where(around < size, around, 2 * size - 1 - around), weights


def reduce_bicubic(image: ImageData, factor: int) -> ImageData:
    """Reduce an image as MATLAB's ``imresize(image, 1 / factor)`` does.

    The kernel is stretched by the factor (antialiasing), the edge row is repeated in the
    mirror, and both reductions, rows first, end in 8 bit: bit for bit the published Set5 at
    factors 2, 3 and 4.

    Args:
        image: uint8 (H, W, C), H and W multiples of the factor.
        factor: Whole number, at least 1.

    Returns:
        uint8 (H // factor, W // factor, C).
    """
    rows, row_weights = _reduction(image.shape[0], factor)
    columns, column_weights = _reduction(image.shape[1], factor)
    flat = _to_8_bit(np.einsum("it,itwc->iwc", row_weights, image[rows].astype(np.float64)))
    return _to_8_bit(np.einsum("jt,ijtc->ijc", column_weights, flat[:, columns].astype(np.float64)))


def _to_8_bit(values: NDArray[np.float64]) -> ImageData:
    return np.clip(np.floor(values + 0.5), 0, 255).astype(np.uint8)


def read_pairs(folder: Path, scale: int, smallest: int, most: int | None = None) -> list[Pair]:
    """Read the photographs of a folder, in the order of their names, and reduce them.

    Args:
        folder: Holds PNG, JPEG, TIFF, BMP or WebP files.
        scale: Side of a photograph over side of its reduction.
        smallest: Smallest side a reduction may have, in pixels.
        most: Stop after so many; None reads all.

    Raises:
        NystraError: No such folder, no images in it, an unreadable or too small image.
    """
    if not folder.is_dir():
        raise NystraError(f"{folder} is not a folder: --data takes one with train/ and val/ in it")
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in _SUFFIXES)[:most]
    if not files:
        raise NystraError(f"{folder} holds no images: put PNG or JPEG photographs there")
    return [_read_pair(file, scale, smallest) for file in files]


def _read_pair(file: Path, scale: int, smallest: int) -> Pair:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            pixels: ImageData = np.array(image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise NystraError(f"{file} cannot be read as an image: {error}") from error
    height, width = (side // scale * scale for side in pixels.shape[:2])
    if min(height, width) < smallest * scale:
        raise NystraError(
            f"{file} is {pixels.shape[1]}x{pixels.shape[0]}: both sides must be at least "
            f"{smallest * scale} pixels; leave it out or train with a smaller --patch"
        )
    large = np.ascontiguousarray(pixels[:height, :width])
    return Pair(large, reduce_bicubic(large, scale))


def draw_batch(
    pairs: Sequence[Pair], patch: int, batch: int, seed: int, step: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw the crops of one step, rotated and mirrored at random, independently of other steps.

    Args:
        pairs: What to draw from.
        patch: Side of a crop of the reduction, in pixels.
        batch: Number of crops B.
        seed: Of the whole training.
        step: Number of the step, from 0.

    Returns:
        The small crops (B, 3, patch, patch) and the large ones (B, 3, s patch, s patch), 0..1.
    """
    generator = np.random.default_rng([seed, step])
    smalls: list[ImageData] = []
    larges: list[ImageData] = []
    for _ in range(batch):
        pair = pairs[int(generator.integers(len(pairs)))]
        scale = pair.large.shape[0] // pair.small.shape[0]
        y = int(generator.integers(pair.small.shape[0] - patch + 1))
        x = int(generator.integers(pair.small.shape[1] - patch + 1))
        turn, mirror = int(generator.integers(4)), int(generator.integers(2))
        for pixels, factor, crops in ((pair.small, 1, smalls), (pair.large, scale, larges)):
            rows = slice(y * factor, (y + patch) * factor)
            columns = slice(x * factor, (x + patch) * factor)
            crop = np.rot90(pixels[rows, columns], turn)
            crops.append((crop[:, ::-1] if mirror else crop).transpose(2, 0, 1))
    return _unit(smalls), _unit(larges)


def _unit(crops: list[ImageData]) -> NDArray[np.float32]:
    return np.stack(crops).astype(np.float32) / np.float32(255.0)
