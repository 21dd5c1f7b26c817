"""Images by Pillow: everything in 8 bits, and gray PNG in 16."""

from __future__ import annotations

import io
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError
from . import codec_png, jpeg_scan
from .image_data import ImageData, plausible_dpi, turned, unpremultiplied
from .png_chunks import check_chunks

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF", "AVIF")
"""The formats that are read, by Pillow's names; TIFF has a codec of its own."""

_ORIENTATION = 274
_STALE_TAGS = (256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 322, 323, 324, 325, 338, 339)
_STALE_EXIF_TAGS = (0xA002, 0xA003)  # pixel dimensions of the original
_EXIF_FOLDER = 0x8769

_PNG_LEVEL = 4
"""The level of deflate: a photograph takes half the time of level 6, and up to 4 % more bytes."""

_PEAK_8, _PEAK_16 = np.float32(255), np.float32(65535)


class PillowFile:
    """A file that Pillow opened; see `ImageFile`."""

    def __init__(self, image: Any, stream: BinaryIO, name: str) -> None:
        """Keep the header that Pillow read."""
        self.format, self.size = str(image.format), (image.size[1], image.size[0])
        self._image, self._stream, self._name = image, stream, name

        self._orientation: int | None = None

    def orientation(self) -> int:
        """Return the EXIF orientation."""
        if self._orientation is None:
            value = self._image.getexif().get(_ORIENTATION, 1)
            self._orientation = value if isinstance(value, int) else 1
        return self._orientation

    def decode(self) -> ImageData:
        """Return the image with profile, resolution and EXIF data."""
        image = self._image
        deep = self.format == "PNG" and self._check_png()
        if self.format in ("PNG", "WEBP") and getattr(image, "n_frames", 1) > 1:
            raise NystraError(f"{self._name} is animated, expected a single image")
        if self.format == "JPEG":
            image = _jpeg_that_must_end(image, self._stream)
        image.load()
        orientation = self.orientation()  # a PNG may carry it behind its pixels
        exif = _without_orientation(self._image.getexif())
        decoded = (
            codec_png.decode(self._stream, self._name) if deep else image_of(image, self._name)
        )
        return turned(replace(with_extras(decoded, image), exif=exif), orientation)

    def _check_png(self) -> bool:
        """Check the chunks; return whether the image is for `codec_png`."""
        position = self._stream.tell()
        check_chunks(self._stream, self._name)
        deep = codec_png.is_deep_color(self._stream)
        self._stream.seek(position)
        return deep


@contextmanager
def opened(stream: BinaryIO, name: str) -> Iterator[PillowFile]:
    """Open a file of any of `FORMATS` but TIFF."""
    from PIL import Image

    with pixel_limit_lifted(), Image.open(stream, formats=_formats()) as image:
        yield PillowFile(image, stream, name)


@cache
def _formats() -> list[str]:
    """Return those of `FORMATS` that this Pillow reads; no other format is loaded."""
    from PIL import Image

    Image.preinit()
    for name in ("WebP", "Avif"):
        with suppress(ImportError):
            import_module(f"PIL.{name}ImagePlugin")
    return [kind for kind in FORMATS if kind in Image.OPEN and kind != "TIFF"]


def _jpeg_that_must_end(image: Any, stream: BinaryIO) -> Any:
    from PIL import JpegImagePlugin

    position = stream.tell()
    data = jpeg_scan.without_end(stream)
    stream.seek(position)
    return image if data is None else JpegImagePlugin.JpegImageFile(io.BytesIO(data))


def encode(
    stream: BinaryIO, kind: str, values: Array, image: ImageData, quality: int | None
) -> None:
    """Write (H, W, 1 to 4) uint8 values as PNG, JPEG or WebP."""
    from PIL import Image

    lossless = {"lossless": True, "exact": True}
    by_kind: dict[str, dict[str, Any]] = {
        "PNG": {"compress_level": _PNG_LEVEL},
        "JPEG": {"quality": 95 if quality is None else quality, "subsampling": 0},
        "WebP": lossless if quality is None else {"quality": quality, "exact": True},
    }
    options = by_kind[kind]
    if image.icc:
        options["icc_profile"] = image.icc
    if image.exif:
        options["exif"] = image.exif
    if image.dpi and kind != "WebP":
        options["dpi"] = image.dpi
    flat = values[:, :, 0] if values.shape[2] == 1 else values
    Image.fromarray(np.ascontiguousarray(flat)).save(stream, format=kind.upper(), **options)


def image_of(image: Any, name: str) -> ImageData:
    """Return the pixels of a loaded Pillow image, in 8 bits or as 16-bit gray.

    Raises:
        NystraError: It has more bits.
    """
    if image.mode.startswith("I;16"):
        return ImageData(
            np.divide(np.asarray(image), _PEAK_16, dtype=np.float32)[:, :, None], bits=16
        )
    if image.mode in ("I", "F"):
        raise NystraError(f"{name} has 32 bits per channel, expected 8 or 16: convert it first")
    gray = image.mode in ("1", "L", "LA", "La")
    transparent = "transparency" in image.info or image.mode in ("LA", "PA", "RGBA")
    if image.mode in ("La", "RGBa"):  # which Pillow would round to 8 bits once more
        return _parted(np.asarray(image), premultiplied=True)
    mode = ("LA" if transparent else "L") if gray else ("RGBA" if transparent else "RGB")
    if image.mode == "L" and transparent:
        mode, gray = "RGBA", False  # Pillow knows a transparent value only on the way to RGBA
    values = np.asarray(image if image.mode == mode else image.convert(mode))
    return _parted(values if values.ndim == 3 else values[:, :, None])


def with_extras(decoded: ImageData, image: Any) -> ImageData:
    """Return an image with profile and resolution of the Pillow image that it came from."""
    # The profile of CMYK and its like is of the colors it had before.
    keeps_colors = image.mode not in ("CMYK", "YCbCr", "LAB", "HSV")
    icc = (image.info.get("icc_profile") or None) if keeps_colors else None
    return replace(decoded, icc=icc, dpi=_dpi(image.info.get("dpi")))


def _parted(values: Array, *, premultiplied: bool = False) -> ImageData:
    """Return (H, W, 1 to 4) uint8 values as an image; the last of 2 or 4 channels is alpha."""
    planes = values.shape[2]
    colors = planes - 1 if planes in (2, 4) else planes
    pixels = np.divide(values[:, :, :colors], _PEAK_8, dtype=np.float32)
    if colors == planes:
        return ImageData(pixels)
    alpha = np.divide(values[:, :, -1], _PEAK_8, dtype=np.float32)
    if premultiplied:
        pixels = unpremultiplied(pixels, alpha)
    return ImageData(pixels, alpha)


class _PixelLimit:
    """Pillow's own limit, which is global: lifted while any thread reads by ours."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._before: int | None = None

    @contextmanager
    def lifted(self) -> Iterator[None]:
        from PIL import Image

        with self._lock:
            if self._readers == 0:
                self._before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._readers == 0:
                    Image.MAX_IMAGE_PIXELS = self._before


pixel_limit_lifted = _PixelLimit().lifted


def _dpi(value: Any) -> tuple[float, float] | None:
    try:
        across, down = (float(item) for item in value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return plausible_dpi(across, down)


def _without_orientation(exif: Any) -> bytes | None:
    for tag in (_ORIENTATION, *_STALE_TAGS):
        exif.pop(tag, None)
    inner = exif.get_ifd(_EXIF_FOLDER)
    for tag in _STALE_EXIF_TAGS:
        inner.pop(tag, None)
    if not dict(exif) and not inner:
        return None
    try:
        data: bytes = exif.tobytes()
    except (ValueError, TypeError, struct.error):  # odd data that Pillow reads but cannot write
        return None
    return data if len(data) < 65_000 else None  # what a JPEG segment holds
