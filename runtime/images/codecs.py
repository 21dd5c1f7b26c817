"""Which library decodes and encodes what.

Pillow has everything in 8 bits and grey in 16, but drops the lower half of 16-bit colour in
silence; there pypng (PNG) and tifffile (TIFF) take over.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.errors import NystraError
from . import codec_png, codec_tiff
from .picture import Picture, plausible_dpi, quantise
from .tiff_directories import is_tiff

_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF", "AVIF")
_ORIENTATION = 274
_STALE_TAGS = (256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 322, 323, 324, 325, 338, 339)
_STALE_EXIF_TAGS = (0xA002, 0xA003)  # pixel dimensions of the original
_EXIF_FOLDER = 0x8769

_PNG_LEVEL = 4
"""Of deflate: a photograph takes half the time of level 6, and up to 4 % more bytes."""


def decode(stream: BinaryIO, name: str, max_pixels: int) -> Picture:
    """Read a picture file; see `nystra.runtime.images.images.decode_picture`."""
    with _explained(name):
        return _decode(stream, name, max_pixels)


def head(stream: BinaryIO, name: str) -> tuple[tuple[int, int], str]:
    """Return height and width as they lie in a file, and its format, off its header alone."""
    from PIL import Image

    with _explained(name):
        if is_tiff(stream):
            with codec_tiff.single_page(stream, name) as page:
                return (page.imagelength, page.imagewidth), "TIFF"
        with _no_pixel_limit(), Image.open(stream, formats=_formats()) as image:
            return (image.size[1], image.size[0]), str(image.format)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Say of whatever the codecs raise what it means for the picture."""
    try:
        yield
    except NystraError:
        raise
    except MemoryError as error:
        raise NystraError(f"the memory does not suffice to read the picture {name}") from error
    except Exception as error:  # the codecs raise whatever a damaged file makes them run into
        from PIL import UnidentifiedImageError

        if isinstance(error, UnidentifiedImageError):
            kinds = ", ".join(_FORMATS)
            raise NystraError(
                f"{name} is not a picture that is read here: expected {kinds} (AVIF with Pillow "
                "11.3 or newer)"
            ) from error
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise NystraError(f"the picture {name} is damaged or truncated: {reason}") from error


@cache
def _formats() -> list[str]:
    """Return those of `_FORMATS` that this Pillow reads; the modules of no others are loaded."""
    from PIL import Image

    Image.preinit()
    for name in ("Tiff", "WebP", "Avif"):
        with suppress(ImportError):
            import_module(f"PIL.{name}ImagePlugin")
    return [kind for kind in _FORMATS if kind in Image.OPEN]


def _decode(stream: BinaryIO, name: str, max_pixels: int) -> Picture:
    if is_tiff(stream):
        with codec_tiff.single_page(stream, name) as page:
            _check_size(name, (page.imagewidth, page.imagelength), max_pixels)
            if codec_tiff.is_deep(name, page):
                picture, orientation = codec_tiff.decode(stream, name, page, max_pixels)
                return _turned(picture, orientation)
    stream.seek(0)
    return _decode_by_pillow(stream, name, max_pixels)


def _decode_by_pillow(stream: BinaryIO, name: str, max_pixels: int) -> Picture:
    from PIL import Image

    with _no_pixel_limit(), Image.open(stream, formats=_formats()) as image:
        _check_size(name, image.size, max_pixels)
        if image.format in ("PNG", "WEBP") and getattr(image, "n_frames", 1) > 1:
            raise NystraError(f"{name} is animated, expected a single picture")
        deep = image.format == "PNG" and _peek(stream, codec_png.is_deep_colour)
        image.load()
        exif = image.getexif()  # after the pixels: a PNG may carry it behind them
        # Pillow turns TIFF pictures by itself.
        orientation = 1 if image.format == "TIFF" else exif.get(_ORIENTATION, 1)
        picture = codec_png.decode(stream, name) if deep else _from_pillow(image, name)
        # The profile of CMYK and its like is of the colours it had before.
        keeps_colours = image.mode not in ("CMYK", "YCbCr", "LAB", "HSV")
        picture = replace(
            picture,
            icc=(image.info.get("icc_profile") or None) if keeps_colours else None,
            dpi=_dpi(image.info.get("dpi")),
            exif=None if image.format == "TIFF" else _without_orientation(exif),
        )
    return _turned(picture, orientation)


def _peek(stream: BinaryIO, look: Callable[[BinaryIO], bool]) -> bool:
    """Look into a stream that Pillow is reading, and put it back where it was."""
    position = stream.tell()
    answer = look(stream)
    stream.seek(position)
    return answer


def encode(stream: BinaryIO, kind: str, picture: Picture, quality: int | None = None) -> None:
    """Write a picture file of a kind; see `nystra.runtime.images.images.encode_picture`."""
    channels = picture.pixels
    if picture.alpha is not None:
        channels = np.concatenate([channels, picture.alpha[:, :, None]], axis=2)
    values = quantise(channels, picture.bits)
    if kind == "TIFF":
        codec_tiff.encode(stream, values, picture)
    elif picture.bits == 16:
        codec_png.encode(stream, values, picture)
    else:
        _encode_pillow(stream, kind, values, picture, quality)


def _encode_pillow(
    stream: BinaryIO, kind: str, values: Array, picture: Picture, quality: int | None
) -> None:
    from PIL import Image

    lossless = {"lossless": True, "exact": True}
    by_kind: dict[str, dict[str, Any]] = {
        "PNG": {"compress_level": _PNG_LEVEL},
        "JPEG": {"quality": 95 if quality is None else quality, "subsampling": 0},
        "WebP": lossless if quality is None else {"quality": quality, "exact": True},
    }
    options = by_kind[kind]
    if picture.icc:
        options["icc_profile"] = picture.icc
    if picture.exif:
        options["exif"] = picture.exif
    if picture.dpi and kind != "WebP":
        options["dpi"] = picture.dpi
    flat = values[:, :, 0] if values.shape[2] == 1 else values
    Image.fromarray(np.ascontiguousarray(flat)).save(stream, format=kind.upper(), **options)


def _from_pillow(image: Any, name: str) -> Picture:
    """Return the pixels of a Pillow image, in 8 bits or as 16-bit grey."""
    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.float32) / np.float32(65535)
        return Picture(values[:, :, None], bits=16)
    if image.mode in ("I", "F"):
        raise NystraError(f"{name} has 32 bits a channel, expected 8 or 16: convert it first")
    transparent = "transparency" in image.info or image.mode in ("LA", "La", "PA", "RGBA", "RGBa")
    grey = image.mode in ("1", "L", "LA", "La")
    mode = ("LA" if transparent else "L") if grey else ("RGBA" if transparent else "RGB")
    if image.mode == "L" and transparent:
        mode = "RGBA"  # Pillow knows a transparent value only on the way to RGBA
    if image.mode in ("La", "RGBa"):
        image = image.convert({"La": "LA", "RGBa": "RGBA"}[image.mode])
    values = np.asarray(image if image.mode == mode else image.convert(mode))
    scaled = values.astype(np.float32) / np.float32(255)
    if scaled.ndim == 2:
        return Picture(scaled[:, :, None])
    if mode in ("LA", "RGBA"):
        colours = scaled[:, :, :1] if grey else scaled[:, :, :3]
        return Picture(np.ascontiguousarray(colours), np.ascontiguousarray(scaled[:, :, -1]))
    return Picture(scaled)


def _check_size(name: str, size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise NystraError(f"the picture {name} is {width}x{height}: it has no pixels")
    if width * height > max_pixels:
        raise NystraError(
            f"the picture {name} says it is {width}x{height}, more than {max_pixels} pixels: cut "
            "it into parts, or raise NYSTRA_MAX_PIXELS if it is what it says"
        )


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


_no_pixel_limit = _PixelLimit().lifted


def _turned(picture: Picture, orientation: int) -> Picture:
    """Apply an EXIF orientation to a picture and its resolution."""
    alpha = None if picture.alpha is None else _turn(picture.alpha, orientation)
    dpi = picture.dpi
    if dpi is not None and orientation in (5, 6, 7, 8):
        dpi = (dpi[1], dpi[0])
    return replace(picture, pixels=_turn(picture.pixels, orientation), alpha=alpha, dpi=dpi)


def _turn(array: npt.NDArray[np.float32], orientation: int) -> npt.NDArray[np.float32]:
    """Apply an EXIF orientation (tag 274, 1 to 8) to (H, W, ...)."""
    if orientation in (5, 6, 7, 8):
        array = np.swapaxes(array, 0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(array)


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
