"""Opens image files of the formats that are read.

libvips decodes; what it does not report as damage, and what it does not read besides the pixels,
is found here. No other loader of libvips is ever called.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO, TypeAlias

import numpy as np

from ...core.errors import NystraError
from . import png_chunks
from .exif import read_block
from .image_data import COMMENT, Extras, Metadata, colors_of, decoded
from .image_file import ImageFile, field, from_array, libvips, source
from .tiff_directories import is_tiff

FORMATS = ("PNG", "JPEG", "TIFF", "WebP", "BMP", "GIF", "AVIF")
"""The formats that are read."""

_FIRST = "it is animated: only its first frame was read"
_SEQUENCE = b"avis"
"""The first brand of an animated AVIF."""
_HEAD = 1 << 16
_EMBEDDED = b"DEBM"

Opener: TypeAlias = Callable[[BinaryIO, str], ImageFile]


@contextmanager
def opened(stream: BinaryIO, name: str) -> Iterator[ImageFile]:
    """Open an image file.

    Args:
        stream: At its beginning.
        name: What to call it in the messages.

    Raises:
        NystraError: The format is not supported, or the block that uses the file fails.
    """
    head = stream.read(32)
    stream.seek(0)
    opener = next((opener for matches, opener in _OPENERS if matches(head)), None)
    if opener is None:
        raise NystraError(
            f"{name} is not an image in a supported format: expected {', '.join(FORMATS)}"
        )
    try:
        yield opener(stream, name)
    except (NystraError, ImportError):
        raise
    except MemoryError as error:
        raise NystraError(f"not enough memory to read the image {name}") from error
    except Exception as error:  # pyvips raises whatever a damaged file makes it run into
        text = getattr(error, "detail", None) or str(error)
        lines = dict.fromkeys(line.strip() for line in text.split("\n"))
        reason = "; ".join(filter(None, lines))[:300] or type(error).__name__
        raise NystraError(f"the image {name} is damaged or truncated: {reason}") from error


def _open_png(stream: BinaryIO, name: str) -> ImageFile:
    extras = png_chunks.read_extras(stream, name)
    image = libvips().Image.pngload_source(source(stream), access="sequential", fail_on="warning")

    return ImageFile("PNG", (image.height, image.width), extras, lambda: image)


def _open_jpeg(stream: BinaryIO, name: str) -> ImageFile:
    from . import jpeg_segments

    data = stream.read()
    # Warnings are no errors, since cameras write surplus bytes, of which libjpeg warns.
    image = libvips().Image.jpegload_buffer(
        jpeg_segments.without_end(data), access="sequential", fail_on="error"
    )
    extras = jpeg_segments.read_extras(data)
    return ImageFile("JPEG", (image.height, image.width), extras, lambda: image)


def _open_tiff(stream: BinaryIO, name: str) -> ImageFile:
    from .tiff_file import open_tiff

    return open_tiff(stream, name)


def _open_by(format: str, loader: str) -> Opener:
    def open_it(stream: BinaryIO, name: str) -> ImageFile:
        load = getattr(libvips().Image, loader)
        image = load(source(stream), access="sequential", fail_on="warning")
        block, orientation, dpi, notes = read_block(field(image, "exif-data"))
        if format == "AVIF":
            orientation = 1  # that of the format itself is the valid one, and has been applied
        stream.seek(0)
        head = stream.read(_HEAD)
        if int(field(image, "n-pages") or 1) > 1 or head[8:12] == _SEQUENCE:
            notes.append(_FIRST)
        metadata = Metadata(block, field(image, "xmp-data"))
        if format == "GIF":
            metadata = _texts_of_gif(stream)
        elif format == "AVIF":
            metadata = replace(metadata, colors=_colors_of_avif(head))
        extras = Extras(metadata, orientation, dpi, tuple(notes))
        return ImageFile(format, (image.height, image.width), extras, lambda: image)

    return open_it


def _texts_of_gif(stream: BinaryIO) -> Metadata:
    """Return the comment and the XMP of a GIF, which libvips does not read."""
    from PIL.GifImagePlugin import GifImageFile

    stream.seek(0)
    info = GifImageFile(stream).info
    comment, xmp = info.get("comment"), info.get("xmp")
    texts = ((COMMENT, decoded(comment)),) if isinstance(comment, bytes) else ()
    return Metadata(xmp=xmp if isinstance(xmp, bytes) else None, texts=texts)


def _colors_of_avif(head: bytes) -> tuple[tuple[str, bytes], ...]:
    """Return the colors of an AVIF as PNG states them, unless they are those of sRGB."""
    _, found, colors = head.partition(b"colrnclx")
    if not found or len(colors) < 4:
        return ()
    return colors_of(*struct.unpack(">HH", colors[:4]))


def _open_bmp(stream: BinaryIO, name: str) -> ImageFile:
    """Open a BMP by Pillow, since the binary wheel of libvips cannot."""
    from PIL.BmpImagePlugin import BmpImageFile

    file = BmpImageFile(stream)
    mode = {"1": "L", "L": "L", "RGBA": "RGBA"}.get(file.mode, "RGB")
    extras = Extras(dpi=file.info.get("dpi"), icc=_profile_of_bmp(stream))
    size = (file.height, file.width)
    return ImageFile("BMP", size, extras, lambda: from_array(np.asarray(file.convert(mode))))


def _profile_of_bmp(stream: BinaryIO) -> bytes | None:
    stream.seek(14)
    header = stream.read(124)
    if len(header) < 124 or header[56:60] != _EMBEDDED:
        return None
    place, length = struct.unpack("<II", header[112:120])
    stream.seek(14 + place)
    return stream.read(min(length, _HEAD * 64)) or None


_OPENERS: tuple[tuple[Callable[[bytes], bool], Opener], ...] = (
    (lambda head: head.startswith(b"\x89PNG\r\n\x1a\n"), _open_png),
    (lambda head: head.startswith(b"\xff\xd8\xff"), _open_jpeg),
    (is_tiff, _open_tiff),
    (
        lambda head: head[:4] == b"RIFF" and head[8:12] == b"WEBP",
        _open_by("WebP", "webpload_source"),
    ),
    (lambda head: head.startswith((b"GIF87a", b"GIF89a")), _open_by("GIF", "gifload_source")),
    (lambda head: head[4:8] == b"ftyp" and b"avi" in head[8:], _open_by("AVIF", "heifload_source")),
    (lambda head: head.startswith(b"BM"), _open_bmp),
)
