"""An image in memory, and what its file says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array

_LUMA = np.array((0.299, 0.587, 0.114), np.float32)
"""Weights of red, green and blue in the luma of BT.601."""


def luma_of(pixels: Array) -> Array:
    """Return the luma of pixels (..., 3) as (...), the same for a pixel in any image.

    A matrix product would sum in an order that depends on the shape and on where the memory lies.
    """
    red, green, blue = (pixels[..., channel] * _LUMA[channel] for channel in range(3))
    luma: Array = red + green + blue
    return luma


EXCHANGING = (5, 6, 7, 8)
"""EXIF orientations (tag 274) that exchange height and width."""


MAX_METADATA = 1 << 20
"""Bytes of all metadata of a picture together, unpacked, that are kept."""


@dataclass(frozen=True)
class Metadata:
    """What a file says of its image besides profile and resolution.

    Attributes:
        format: The format of the file.
        fields: EXIF, XMP, IPTC and texts, by the names that libvips has for them.
    """

    format: str = ""
    fields: Mapping[str, bytes | str] = field(default_factory=dict)


NO_METADATA = Metadata()


@dataclass(frozen=True)
class ImageData:
    """An image in memory.

    Attributes:
        pixels: (H, W, C) float32 in 0..1, C 1 (gray) or 3 (RGB), not premultiplied.
        alpha: (H, W) float32 in 0..1, or None for an opaque image.
        bits: Bits per channel: 8, 16, or 32 for floating point.
        icc: ICC profile of the pixels, or None.
        dpi: Resolution across and down in pixels per inch, or None.
        metadata: What else its file says.
        notes: What was changed or left out when it was read, in sentences.
    """

    pixels: npt.NDArray[np.float32]
    alpha: npt.NDArray[np.float32] | None = None
    bits: int = 8
    icc: bytes | None = None
    dpi: tuple[float, float] | None = None
    metadata: Metadata = NO_METADATA
    notes: tuple[str, ...] = ()

    def with_profile_of(self, before: ImageData) -> ImageData:
        """Return the image with the profile of another one if it has the same kind of colors.

        Otherwise it has none, and a note says so.
        """
        if before.icc is None or before.gray == self.gray:
            return replace(self, icc=before.icc)
        note = "its color profile was left out: the output has other colors"
        return replace(self, icc=None, notes=(*self.notes, note))

    @property
    def gray(self) -> bool:
        """Whether it has one channel."""
        return bool(self.pixels.shape[2] == 1)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.pixels.shape[0], self.pixels.shape[1]


def quantize(values: Array, bits: int) -> Array:
    """Return values as whole numbers of 8 or 16 bits, clipped to 0..1 and rounded to nearest.

    With 32 bits they are floating point, and only clipped.
    """
    if bits == 32:
        clipped: Array = np.clip(values, 0.0, 1.0, dtype=np.float32)
        return clipped
    peak = (1 << bits) - 1
    scaled = np.clip(values, 0.0, 1.0) * np.float32(peak) + np.float32(0.5)
    integers: Array = np.minimum(scaled, peak).astype(np.uint8 if bits == 8 else np.uint16)
    return integers


def resize_plane(plane: Array, size: tuple[int, int]) -> npt.NDArray[np.float32]:
    """Resize one channel (H, W) in 0..1 to (height, width) by Lanczos, clipped to 0..1."""
    from PIL import Image

    if plane.shape == size:
        return np.asarray(plane, dtype=np.float32)
    source = Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32))
    resized = source.resize((size[1], size[0]), Image.Resampling.LANCZOS)
    return np.clip(np.asarray(resized, dtype=np.float32), 0.0, 1.0)


def turn(image: ImageData, orientation: int) -> ImageData:
    """Apply an EXIF orientation to an image and its resolution."""
    alpha = None if image.alpha is None else _turn(image.alpha, orientation)
    dpi = image.dpi
    if dpi is not None and orientation in EXCHANGING:
        dpi = (dpi[1], dpi[0])
    return replace(image, pixels=_turn(image.pixels, orientation), alpha=alpha, dpi=dpi)


def _turn(array: npt.NDArray[np.float32], orientation: int) -> npt.NDArray[np.float32]:
    """Apply an EXIF orientation (tag 274, 1 to 8) to (H, W, ...)."""
    if orientation in EXCHANGING:
        array = np.swapaxes(array, 0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(array)
