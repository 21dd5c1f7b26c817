"""Images that are larger than the memory: read and written row by row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.files.temporary import temporary_path
from ...core.files.writing import atomic_path
from .encoding import make_header, save_file
from .image_data import ImageData, quantize
from .image_file import ImageFile, gray_or_rgb, libvips
from .images import without_unfit

_BITS = {"uchar": 8, "ushort": 16}
_SLICE = 2 << 20
"""Bytes that are decoded or rounded at once."""


@dataclass
class RowReader:
    """The pixels of an image file, from top to bottom.

    Attributes:
        size: Height and width.
        channels: 1 or 3.
        image: Without pixels: what else is known of it.
    """

    size: tuple[int, int]
    channels: int
    image: ImageData
    _picture: Any
    _region: Any
    _name: str
    _next: int = 0

    @classmethod
    def of(cls, file: ImageFile, name: str) -> RowReader | None:
        """Return the reader of an open file, or None if it can only be read as a whole.

        It has alpha, is floating point, or stands on a side.

        Raises:
            NystraError: The image is of a kind that is not supported, or damaged.
        """
        if file.orientation != 1:
            return None
        picture, notes = gray_or_rgb(file.load(), name)
        kind, bands = picture.format, picture.bands
        if kind not in _BITS or bands not in (1, 3):
            return None
        none = np.empty((0, 0, bands), np.float32)
        image = file.describe_pixels(none, None, _BITS[kind], notes)
        return cls(file.size, bands, image, picture, libvips().Region.new(picture), name)

    def close(self) -> None:
        """Release what libvips holds of the file."""
        self._region = self._picture = None

    def read(self, rows: int) -> npt.NDArray[np.float32]:
        """Return the next rows, (1, C, rows, W) in 0..1.

        Raises:
            NystraError: The file is damaged.
        """
        width, bits = self.size[1], self.image.bits
        dtype = np.dtype(np.uint8 if bits == 8 else np.uint16)
        peak = np.float32((1 << bits) - 1)
        result = np.empty((1, self.channels, rows, width), np.float32)
        step = max(_SLICE // (width * self.channels * dtype.itemsize), 1)
        for first in range(0, rows, step):
            count = min(step, rows - first)
            try:
                data = self._region.fetch(0, self._next, width, count)
            except Exception as error:  # pyvips raises whatever a damaged file makes it run into
                reason = " ".join(str(error).split())[:300]
                raise NystraError(
                    f"the image {self._name} is damaged or truncated: {reason}"
                ) from error
            self._next += count
            values = np.frombuffer(data, dtype).reshape(count, width, self.channels)
            np.divide(np.moveaxis(values, 2, 0), peak, out=result[0, :, first : first + count])
        return result


def write_strips(
    path: Path,
    strips: Iterable[Array],
    size: tuple[int, int],
    image: ImageData,
    kind: str,
    quality: int | None,
) -> list[str]:
    """Write an image row by row, atomically; its pixels are on the disk once in between.

    Args:
        path: The file; an existing one is replaced.
        strips: (rows, W, C) in 0..1 from top to bottom; clipped.
        size: Height and width.
        image: What else is known of it; its ``pixels`` have no rows, but the right channels.
        kind: ``PNG``, ``JPEG`` or ``TIFF``.
        quality: As in `images.encode_image`.

    Returns:
        What the format cannot hold, as `images.write_image`.

    Raises:
        NystraError: The disk is full, or the format cannot hold the image.
    """
    image, lost = without_unfit(image, size, kind, str(path))
    channels = image.pixels.shape[2]
    with atomic_path(path) as temporary:
        raw = temporary_path(path.with_suffix(".tif"))
        try:
            with raw.open("wb") as stream:
                stream.write(make_header(size, channels, image.bits))
                for strip in strips:
                    step = max(_SLICE // (strip.shape[1] * channels * 4), 1)
                    for first in range(0, len(strip), step):
                        rounded = quantize(strip[first : first + step], image.bits)
                        stream.write(np.ascontiguousarray(rounded).data)
                    del strip
            save_file(raw, temporary, image, kind, quality)
        finally:
            raw.unlink(missing_ok=True)
    return lost
