"""The flicker of a restored video: the error of its changes from frame to frame.

The figure is dtSSD (M. Erofeev, Y. Gitman, D. Vatolin, A. Fedorov, J. Wang, "Perceptually motivated
benchmark for video matting", BMVC 2015) as a root mean square a pixel: for the output o and the
ground truth g, of frame t - 1 to frame t,

    d_t = sqrt(mean over pixels of ((o_t - o_{t-1}) - (g_t - g_{t-1}))^2),

and the mean of d_t over t. Optical flow is not used. A constant error does not count, one that
comes and goes counts in full; 0 is best.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from .image_quality import luma

STEPS = 255.0
"""The unit of the figure: steps of 8 bits."""


class Flicker:
    """The figure of a video whose frames come one by one; one error image is held."""

    def __init__(self, crop_border: int = 0, channel: str = "y") -> None:
        """Begin with no frame.

        Args:
            crop_border: Pixels left out on every side.
            channel: ``y`` (BT.601 in studio swing) or ``rgb``.
        """
        self._border, self._channel = crop_border, channel
        self._before: npt.NDArray[np.float64] | None = None
        self._changes: list[float] = []

    def add(self, got: Array, expected: Array) -> None:
        """Add the next frame.

        Args:
            got: (H, W, C) in 0..1.
            expected: Its ground truth, of the same shape.
        """
        planes = [self._plane(image) for image in (got, expected)]
        error = planes[0] - planes[1]
        if self._before is not None:
            self._changes.append(math.sqrt(float(np.mean((error - self._before) ** 2))))
        self._before = error

    @property
    def value(self) -> float:
        """The figure in steps of 8 bits; 0 for a single frame."""
        return STEPS * float(np.mean(self._changes)) if self._changes else 0.0

    def _plane(self, image: Array) -> npt.NDArray[np.float64]:
        height, width = image.shape[:2]
        border = self._border
        inner = image[border : height - border, border : width - border]
        if self._channel == "y":
            return luma(inner)
        return np.asarray(inner, dtype=np.float64)
