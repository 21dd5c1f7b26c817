"""An open image file: its header, and its pixels by the same header."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError
from .image_data import EXCHANGING, NO_METADATA, ImageData, Metadata, turn

_MINIMUM_VERSION = (8, 16)
_ADVICE = "pip install 'pyvips[binary]'"


@cache
def libvips() -> Any:
    """Return pyvips with one thread for each operation and no memory of earlier operations.

    An operation runs inside a caller's thread; a result that is kept would keep its image.

    Raises:
        NystraError: There is no libvips, or an old one.
    """
    try:
        import pyvips
    except OSError as error:  # of the system's linker
        raise NystraError(f"pyvips finds no libvips ({error}): {_ADVICE}") from error
    if not pyvips.at_least_libvips(*_MINIMUM_VERSION):
        major, minimum = pyvips.version(0), ".".join(map(str, _MINIMUM_VERSION))
        raise NystraError(
            f"pyvips uses libvips {major}.{pyvips.version(1)}, expected {minimum} or newer: "
            f"{_ADVICE}"
        )
    pyvips.cache_set_max(0)
    pyvips.concurrency_set(1)
    pyvips.logger.setLevel("CRITICAL")  # what matters is an error of the operation
    return pyvips


_DTYPES = {"uchar": np.uint8, "ushort": np.uint16, "float": np.float32}
_INTERPRETATIONS = {
    "uchar": ("b-w", "srgb"),
    "ushort": ("grey16", "rgb16"),
    "float": ("b-w", "scrgb"),
}
_SLICE = 2 << 20
"""Bytes that are decoded at once."""
_GRAYS, _COLORS = ("b-w", "grey16"), ("srgb", "rgb16", "scrgb", "rgb")


@dataclass(frozen=True)
class ImageFile:
    """An image file, open.

    Attributes:
        format: One of `opening.FORMATS`.
        size: Height and width as stored, before the orientation is applied.
        load: Returns the image of pyvips, not yet decoded.
        orientation: EXIF orientation (tag 274, 1 to 8).
        metadata: As in `ImageData`; so are ``icc``, ``dpi`` and ``notes``.
    """

    format: str
    size: tuple[int, int]
    load: Callable[[], Any]
    orientation: int = 1
    metadata: Metadata = NO_METADATA
    icc: bytes | None = None
    dpi: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()

    @property
    def upright_size(self) -> tuple[int, int]:
        """Height and width with the orientation applied."""
        height, width = self.size
        return (width, height) if self.orientation in EXCHANGING else (height, width)

    def decode(self, name: str) -> ImageData:
        """Return the image with its orientation applied.

        Args:
            name: What to call it in the messages.

        Raises:
            NystraError: It is damaged, or of a kind that is not supported.
            Exception: Whatever pyvips raises of a damaged file.
        """
        image, notes = gray_or_rgb(self.load(), name)
        kind, bands = image.format, image.bands
        values = _values(image)
        if kind == "float":
            _check_range(values, name)
        colors, bits = 1 if bands < 3 else 3, 8 * values.dtype.itemsize
        peak = np.float32(_white(image, kind))
        pixels = np.divide(values[:, :, :colors], peak, dtype=np.float32, order="C")
        alpha = None
        if bands > colors:
            alpha = np.divide(values[:, :, -1], peak, dtype=np.float32, order="C")
        return turn(self.describe_pixels(pixels, alpha, bits, notes), self.orientation)

    def describe_pixels(
        self, pixels: Array, alpha: Array | None, bits: int, notes: list[str]
    ) -> ImageData:
        """Return pixels with what the file says of them; ``notes`` are those of `gray_or_rgb`."""
        icc = None if notes else self.icc
        notes = [*self.notes, *notes]
        return ImageData(pixels, alpha, bits, icc, self.dpi, self.metadata, tuple(notes))


def from_array(values: Array) -> Any:
    """Return an image of pyvips on an array (H, W) or (H, W, 1 to 4) of 8, 16 or 32 bits."""
    values = np.ascontiguousarray(values if values.ndim == 3 else values[:, :, None])
    height, width, bands = values.shape
    kind = {1: "uchar", 2: "ushort", 4: "float"}[values.dtype.itemsize]
    image = libvips().Image.new_from_memory(values.data, width, height, bands, kind)
    gray, color = _INTERPRETATIONS[kind]
    return image.copy(interpretation=gray if bands < 3 else color)


def load(format: str, stream: BinaryIO, **options: Any) -> Any:
    """Return a file, or the content of bytes, as an image of pyvips that is not yet decoded.

    The content of bytes is copied: libvips would not keep it alive.

    Args:
        format: The name of the loader of libvips, such as ``png``.
        stream: The file.
        options: Of the loader.

    Raises:
        NystraError: Another file took its place.
        Exception: Whatever pyvips raises.
    """
    options["access"] = "sequential"
    vips = libvips()
    path = getattr(stream, "name", None)
    if not isinstance(path, (str, bytes, os.PathLike)):
        stream.seek(0)
        content = stream.getvalue() if isinstance(stream, io.BytesIO) else stream.read()
        return getattr(vips.Image, f"{format}load_buffer")(content, **options)
    # A second handle, since the position of a first one is that of the checks.
    with open(path, "rb", buffering=0) as other:
        if not os.path.sameopenfile(stream.fileno(), other.fileno()):
            raise NystraError(f"{path!s} was replaced while it was read: try again")
        source = vips.Source.new_from_descriptor(other.fileno())
        return getattr(vips.Image, f"{format}load_source")(source, **options)


def _values(image: Any) -> Array:
    """Return the numbers of an image of pyvips (H, W, C), in rows from top to bottom.

    The thread of the caller computes them: libvips starts threads to write a whole image.
    """
    region, rows, width = libvips().Region.new(image), image.height, image.width
    values = np.empty((rows, width, image.bands), _DTYPES[image.format])
    step = max(_SLICE // (values.nbytes // rows), 1)
    for first in range(0, rows, step):
        part = values[first : first + step]
        data = region.fetch(0, first, width, len(part))
        part[:] = np.frombuffer(data, values.dtype).reshape(part.shape)
    return values


def field(image: Any, name: str) -> Any:
    """Return what libvips says of an image under a name, or None."""
    return image.get(name) if image.get_typeof(name) else None


def gray_or_rgb(image: Any, name: str) -> tuple[Any, list[str]]:
    """Return an image as gray or RGB, with alpha or without, and what was changed.

    Raises:
        NystraError: It has other channels, or numbers of another kind.
    """
    kind, meaning = image.format, image.interpretation
    if kind not in _DTYPES:
        raise NystraError(
            f"{name} holds {kind} numbers, expected 8 or 16 bits a channel, or 32 in floating "
            "point: convert it first"
        )
    notes = []
    if meaning == "cmyk":
        image = image.icc_transform("srgb", embedded=True, input_profile="cmyk")
        notes.append("its CMYK colors were converted to sRGB")
    elif meaning not in (*_GRAYS, *_COLORS, "multiband"):
        image = image.colourspace("srgb")
        notes.append(f"its {meaning} colors were converted to sRGB")
    colors, bands = 1 if meaning in _GRAYS else 3, image.bands
    if bands not in (colors, colors + 1) or meaning == "multiband":
        raise NystraError(
            f"{name} has {bands} channels ({meaning}), expected gray or RGB, and alpha"
        )
    return image, notes


def _white(image: Any, kind: str) -> int:
    """Return the number that is white: AVIF of 10 and 12 bits fills the lower ones with zeros."""
    if kind == "ushort" and field(image, "heif-compression"):
        bits = int(field(image, "bits-per-sample"))
        return ((1 << bits) - 1) << (16 - bits)
    return {"uchar": 255, "ushort": 65535, "float": 1}[kind]


def _check_range(values: Array, name: str) -> None:
    low, high = float(values.min()), float(values.max())
    if not (low >= 0.0 and high <= 1.0):  # true of NaN too
        raise NystraError(
            f"{name} holds floating-point numbers from {low:.4g} to {high:.4g}, expected 0 to 1: "
            "scale it first"
        )
