"""From an image to the input of a classifier."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.ports.preprocessing import Preprocessing
from ...images.image_data import luma_of
from ...images.resampling import resample

_MOST_PIXELS = 1 << 24
"""Most pixels of a resized image: without a crop an elongated one would become very large."""


def prepare(pixels: Array, preprocessing: Preprocessing, channels: int) -> npt.NDArray[np.float32]:
    """Resize, crop and normalize an image, unless the model file does so itself.

    Args:
        pixels: (H, W, C) in 0..1, C 1 (gray) or 3 (RGB).
        preprocessing: The steps.
        channels: Channels of the network's input, 1 or 3: gray is repeated, color becomes luma.

    Returns:
        (1, channels, H', W').

    Raises:
        NystraError: The image would become too large.
    """
    remaining = preprocessing.remaining
    image: Array = _in_channels(pixels, channels)
    if remaining.resize is not None:
        height, width = remaining.resize.size(*image.shape[:2])
        rows, columns = (
            middle(side, kept)
            for side, kept in zip((height, width), remaining.crop or (height, width), strict=True)
        )
        resized = (rows.stop - rows.start) * (columns.stop - columns.start)
        if resized > _MOST_PIXELS:
            raise NystraError(
                f"an image of {image.shape[1]}x{image.shape[0]} pixels would become "
                f"{width}x{height}: expected a less elongated one"
            )
        image = resample(image, remaining.resize, rows, columns)
    if remaining.mean:
        image = (image - np.array(remaining.mean, np.float32)) / np.array(remaining.std, np.float32)
    return np.ascontiguousarray(np.moveaxis(image, 2, 0)[None], dtype=np.float32)


def middle(side: int, kept: int) -> slice:
    """Return the center of a side; half a pixel is rounded to even, as in torchvision.

    Args:
        side: In pixels.
        kept: Number of pixels to keep, at most all.
    """
    first = round((side - kept) / 2)
    return slice(first, first + kept)


def _in_channels(pixels: Array, channels: int) -> Array:
    if pixels.shape[2] == channels:
        return pixels
    if channels == 1:
        luma: Array = luma_of(pixels)[:, :, None]
        return luma
    return np.repeat(pixels, channels, axis=2)
