"""The padding of images for the published figures of SwinIR (in its test script)."""

from __future__ import annotations

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError


def official_pad(image: Array, window: int) -> Array:
    """Mirror an image at the bottom and right to the size of the official test procedure.

    Each side becomes (side // window + 1) * window: something is always added, even to a side
    that is a multiple. The edge row is repeated: ... y z | z y ...

    Args:
        image: (..., H, W), each side at least 1.
        window: The network's window in pixels.

    Returns:
        A new array (..., H', W').

    Raises:
        NystraError: The image is empty or the window is not positive.
    """
    if window < 1 or image.ndim < 2 or 0 in image.shape:
        raise NystraError(f"cannot pad an image of shape {image.shape} to windows of {window}")
    padded = image
    for axis in (-2, -1):
        size = image.shape[axis]
        index = np.arange((size // window + 1) * window) % (2 * size)
        padded = np.take(padded, np.minimum(index, 2 * size - 1 - index), axis=axis)
    return padded
