"""PSNR and SSIM as the super-resolution literature computes them, in float64.

Images are (H, W) or (H, W, C) with C 1 or 3, RGB, in 0..peak. Both figures can be taken on
the Y channel of ITU-R BT.601 in studio swing, as MATLAB's ``rgb2ycbcr`` gives it and BasicSR
uses it: for R, G, B in 0..1, Y = (16 + 65.481 R + 128.553 G + 24.966 B) / 255, not rounded.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.errors import NystraError

_LUMA = (65.481, 128.553, 24.966)
SSIM_SIDE = 11
"""Pixels that SSIM needs in both directions."""

_SIGMA = 1.5
_K1, _K2 = 0.01, 0.03


def luma(image: Array, peak: float = 1.0) -> npt.NDArray[np.float64]:
    """Return the Y channel of an image.

    Args:
        image: (H, W, 3), RGB, in 0..peak; (H, W) and (H, W, 1) are returned as they are.
        peak: The value of white.

    Returns:
        (H, W) in float64, in 16/255..235/255 of the peak for a color image.
    """
    values = np.asarray(image, dtype=np.float64)
    if values.ndim == 3 and values.shape[2] == 1:
        return values[:, :, 0]
    if values.ndim == 2:
        return values
    weights = np.array(_LUMA, dtype=np.float64) / 255.0
    return np.asarray(values @ weights + 16.0 / 255.0 * peak, dtype=np.float64)


def psnr(
    got: Array,
    expected: Array,
    *,
    crop_border: int = 0,
    channel: str = "rgb",
    peak: float = 1.0,
) -> float:
    """Return the peak signal-to-noise ratio in dB: 10 log10(peak^2 / mean squared error).

    Args:
        got: An image (see the module).
        expected: The reference image, of the same shape.
        crop_border: Pixels to crop on every side; usually the scale.
        channel: ``rgb`` for all channels together, ``y`` for the Y channel of BT.601.
        peak: The value of white.

    Returns:
        Infinity for equal images (`json_number` caps it), NaN if an image has NaN.

    Raises:
        NystraError: The shapes differ, no pixels are left inside the border, or the channel is
            unknown.
    """
    first, second = _prepare(got, expected, crop_border, channel, peak)
    error = float(np.mean((first - second) ** 2))
    if math.isnan(error):
        return math.nan
    return math.inf if error == 0.0 else 10.0 * math.log10(peak * peak / error)


def ssim(
    got: Array,
    expected: Array,
    *,
    crop_border: int = 0,
    channel: str = "rgb",
    peak: float = 1.0,
) -> float:
    """Return the structural similarity of Wang et al. 2004, eq. 13, averaged.

    11x11 Gaussian weights of sigma 1.5, K1 = 0.01, K2 = 0.03, the average over the pixels whose
    whole window lies in the image and then over the channels: what MATLAB's ``ssim.m`` of the
    authors and BasicSR compute, and scikit-image with ``gaussian_weights=True, sigma=1.5,
    use_sample_covariance=False``.

    Args:
        got: An image (see the module).
        expected: The reference image, of the same shape.
        crop_border: Pixels to crop on every side; usually the scale.
        channel: ``rgb`` for the mean over the channels, ``y`` for the Y channel of BT.601.
        peak: The value of white.

    Raises:
        NystraError: The shapes differ, fewer than 11 pixels are left, or the channel is unknown.
    """
    first, second = _prepare(got, expected, crop_border, channel, peak)
    if min(first.shape[:2]) < SSIM_SIDE:
        raise NystraError(
            f"SSIM needs {SSIM_SIDE} pixels in both directions, got {first.shape[:2]} after "
            f"cropping a border of {crop_border}"
        )
    c1, c2 = (_K1 * peak) ** 2, (_K2 * peak) ** 2
    mean_a, mean_b = _blur(first), _blur(second)
    variance_a = _blur(first * first) - mean_a * mean_a
    variance_b = _blur(second * second) - mean_b * mean_b
    covariance = _blur(first * second) - mean_a * mean_b
    top = (2.0 * mean_a * mean_b + c1) * (2.0 * covariance + c2)
    bottom = (mean_a * mean_a + mean_b * mean_b + c1) * (variance_a + variance_b + c2)
    return float(np.mean(top / bottom))


def _prepare(
    got: Array, expected: Array, crop_border: int, channel: str, peak: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if got.shape != expected.shape or got.ndim not in (2, 3):
        raise NystraError(
            f"got an image of shape {got.shape}, expected one like {expected.shape}, (H, W) or "
            "(H, W, C)"
        )
    if channel not in ("rgb", "y"):
        raise NystraError(f"the channel is {channel!r}, expected 'rgb' or 'y'")
    if crop_border < 0 or 2 * crop_border >= min(got.shape[:2]):
        raise NystraError(f"a border of {crop_border} pixels leaves no pixels of {got.shape[:2]}")
    pair = []
    for image in (got, expected):
        height, width = image.shape[:2]
        inner = image[crop_border : height - crop_border, crop_border : width - crop_border]
        values = luma(inner, peak) if channel == "y" else np.asarray(inner, dtype=np.float64)
        pair.append(values if values.ndim == 3 else values[:, :, None])
    return pair[0], pair[1]


def _blur(image: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the Gaussian average of (H, W, C) where the whole window fits: (H-10, W-10, C)."""
    offsets = np.arange(SSIM_SIDE) - SSIM_SIDE // 2
    weights = np.exp(-0.5 * (offsets / _SIGMA) ** 2)
    weights /= weights.sum()
    rows = image.shape[0] - SSIM_SIDE + 1
    columns = image.shape[1] - SSIM_SIDE + 1
    down = sum(weight * image[i : i + rows] for i, weight in enumerate(weights))
    both = sum(weight * down[:, i : i + columns] for i, weight in enumerate(weights))
    return np.asarray(both, dtype=np.float64)


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
