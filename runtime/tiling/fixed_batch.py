"""Running a model file of a fixed batch on fewer images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError


def fill_batch(function: Callable[..., Array], batch: int) -> Callable[..., Array]:
    """Return a function for 1 to ``batch`` images from one for exactly ``batch`` images.

    Args:
        function: (batch, ...) arrays, by position and name -> (batch, ...).
        batch: How many images the function takes.

    Returns:
        The function for fewer images: the last one is repeated, and the results of the repetitions
        are dropped. Every argument has as many images, or one for all.
    """

    def filled(image: Array, **others: Array) -> Array:
        count = image.shape[0]
        if count > batch:
            raise NystraError(f"got {count} images, the model takes {batch} per run")
        repeated = {name: _repeated(array, batch) for name, array in others.items()}
        return function(_repeated(image, batch), **repeated)[:count]

    return filled


def _repeated(images: Array, batch: int) -> Array:
    full: Array = np.take(images, np.minimum(np.arange(batch), images.shape[0] - 1), axis=0)
    return full
