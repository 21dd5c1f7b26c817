"""Opens image files of the formats that are read.

libvips decodes; what it does not report as damage, and what it does not read besides the pixels,
is found here. No other loader of libvips is ever called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from ...core.errors import NystraError
from . import jpeg_segments, png_chunks
from .exif import read_block
from .extras import Extras
from .image_data import Metadata
from .image_file import ImageFile, field, from_array, source
from .libvips import libvips
from .tiff_directories import is_tiff
from .tiff_file import open_tiff

FORMATS = ("PNG", "JPEG", "TIFF", "WebP", "BMP", "GIF", "AVIF")
"""The formats that are read."""

_FIRST = "it is animated: only its first frame was read"
_SEQUENCE = b"avis"
"""The first brand of an animated AVIF."""

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

    def load() -> Any:
        png_chunks.check_chunks(stream, name)
        return image

    return ImageFile("PNG", (image.height, image.width), extras, load)


def _open_jpeg(stream: BinaryIO, name: str) -> ImageFile:
    data = stream.read()
    # Warnings are no errors, since cameras write surplus bytes, of which libjpeg warns.
    image = libvips().Image.jpegload_buffer(
        jpeg_segments.without_end(data), access="sequential", fail_on="error"
    )
    extras = jpeg_segments.read_extras(data)
    return ImageFile("JPEG", (image.height, image.width), extras, lambda: image)


def _open_by(format: str, loader: str) -> Opener:
    """Return the opener of a format whose metadata libvips reads."""

    def open_it(stream: BinaryIO, name: str) -> ImageFile:
        load = getattr(libvips().Image, loader)
        image = load(source(stream), access="sequential", fail_on="warning")
        block, orientation, dpi, notes = read_block(field(image, "exif-data"))
        if format == "AVIF":
            orientation = 1  # that of the format itself is the valid one, and has been applied
        stream.seek(8)
        if int(field(image, "n-pages") or 1) > 1 or stream.read(4) == _SEQUENCE:
            notes.append(_FIRST)
        metadata = Metadata(block, field(image, "xmp-data"))
        extras = Extras(metadata, orientation, dpi, tuple(notes))
        return ImageFile(format, (image.height, image.width), extras, lambda: image)

    return open_it


def _open_bmp(stream: BinaryIO, name: str) -> ImageFile:
    """Open a BMP by Pillow, since the binary wheel of libvips cannot."""
    from PIL.BmpImagePlugin import BmpImageFile

    file = BmpImageFile(stream)
    mode = {"1": "L", "L": "L", "RGBA": "RGBA"}.get(file.mode, "RGB")
    extras = Extras(dpi=file.info.get("dpi"))
    size = (file.height, file.width)
    return ImageFile("BMP", size, extras, lambda: from_array(np.asarray(file.convert(mode))))


_OPENERS: tuple[tuple[Callable[[bytes], bool], Opener], ...] = (
    (lambda head: head.startswith(b"\x89PNG\r\n\x1a\n"), _open_png),
    (lambda head: head.startswith(b"\xff\xd8\xff"), _open_jpeg),
    (is_tiff, open_tiff),
    (
        lambda head: head[:4] == b"RIFF" and head[8:12] == b"WEBP",
        _open_by("WebP", "webpload_source"),
    ),
    (lambda head: head.startswith((b"GIF87a", b"GIF89a")), _open_by("GIF", "gifload_source")),
    (lambda head: head[4:8] == b"ftyp" and b"avi" in head[8:], _open_by("AVIF", "heifload_source")),
    (lambda head: head.startswith(b"BM"), _open_bmp),
)
