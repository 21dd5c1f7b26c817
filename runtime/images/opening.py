"""Opens image files of the formats that are read.

libvips decodes, and its loaders of these formats are the only ones that are ever called. What it
does not limit or does not keep is found in `png_chunks` and `tags`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from ...core.errors import NystraError
from ...core.files.kinds import HEAD, FileKind, file_kind
from .image_file import ImageFile, field, from_array, load
from .metadata import read_dpi, read_metadata
from .png_chunks import limit_metadata

FORMATS = ("PNG", "JPEG", "TIFF", "WebP", "BMP", "GIF", "AVIF")
"""The formats that are read."""

_FIRST = "it is animated: only its first frame was read"
_SEQUENCE = b"avis"
"""The first brand of an animated AVIF."""
_HEAD = 1 << 16
_PROFILES = (b"iCCP", b"ICC_PROFILE\0", b"ICCP")
"""Marks of color profiles in PNG, JPEG and WebP."""
_NO_PROFILE = "its color profile is damaged, or of other colors, and was left out"
_SCAN, _APP0, _COMMENT = 0xDA, 0xE0, 0xFE
_KEPT_IN_JPEG = (
    *(b"JFIF\0", b"JFXX\0", b"Exif\0", b"http://ns.adobe.com/xap/1.0/\0"),
    *(b"Adobe", b"ICC_PROFILE\0", b"Photoshop 3.0\0", b"Ducky"),
)
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_MOVIE = re.compile(rb"ftyp(?:mp4|isom|qt  )")
_BMP_HEADER, _BMP_PROFILE = 80, b"DEBM"
_USUAL_PRIMARIES, _USUAL_TRANSFERS = (1, 2, 5, 6), (1, 2, 6, 13)
"""Those of sRGB, BT.709 and BT.601, and unspecified ones."""

Opener: TypeAlias = Callable[[BinaryIO, str], ImageFile]


@contextmanager
def open_image(stream: BinaryIO, name: str) -> Iterator[ImageFile]:
    """Open an image file.

    Args:
        stream: At its beginning.
        name: What to call it in the messages.

    Raises:
        NystraError: The format is not supported, or the block that uses the file fails.
    """
    head = stream.read(HEAD)
    stream.seek(0)
    opener = next((opener for matches, opener in _OPENERS if matches(head[:32])), None)
    kind = file_kind(head)
    if opener is None or kind is FileKind.RAW:
        what = f"it is {kind}, " if kind else ""
        raise NystraError(
            f"{name} is not an image in a supported format: {what}expected {', '.join(FORMATS)}"
        )
    try:
        yield opener(stream, name)
    except (NystraError, ImportError):
        raise
    except MemoryError as error:
        raise NystraError(f"not enough memory to read the image {name}") from error
    except Exception as error:  # pyvips raises whatever a damaged file makes it run into
        text = getattr(error, "detail", None) or str(error)
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        reason = lines[0][:300] if lines else type(error).__name__
        raise NystraError(f"the image {name} is damaged or truncated: {reason}") from error


def _open_png(stream: BinaryIO, name: str) -> ImageFile:
    stream, notes = limit_metadata(stream, name)
    image = load("png", stream, fail_on="warning")
    return _describe("PNG", image, stream, notes)


def _open_jpeg(stream: BinaryIO, name: str) -> ImageFile:
    data = stream.read()
    # Warnings are no errors, since cameras write surplus bytes, of which libjpeg warns.
    image = load("jpeg", stream, fail_on="error")
    return _describe("JPEG", image, stream, _find_left_out_of_jpeg(data))


def _find_left_out_of_jpeg(data: bytes) -> list[str]:
    """Return what libvips does not keep of a JPEG, by the names of its segments before the scan."""
    notes = []
    names: dict[str, None] = {}
    place = 2
    while data[place : place + 1] == b"\xff" and place + 4 < len(data):
        marker, body = data[place + 1], data[place + 4 : place + 40]
        if marker == _SCAN:
            break
        if marker >= _APP0 and not body.startswith(_KEPT_IN_JPEG):
            names["COM" if marker == _COMMENT else f"APP{marker - _APP0}"] = None
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    if names:
        notes.append(f"its segments {', '.join(names)} were left out")
    if _MOVIE.search(data):
        notes.append("the video behind its pixels, as in motion photos, was left out")
    return notes


def _open_tiff(stream: BinaryIO, name: str) -> ImageFile:
    from .tags import only_page  # no other format has tags

    page, fail_on, notes = only_page(stream, name)
    # The limit of libtiff is one for strips, which good files exceed. That of the pixels is checked
    # before they are decoded.
    image = load("tiff", stream, page=page, fail_on=fail_on, unlimited=True)
    return _describe("TIFF", image, stream, notes)


def _open_by(format: str, loader: str) -> Opener:
    def open_it(stream: BinaryIO, name: str) -> ImageFile:
        image = load(loader, stream, fail_on="warning")
        stream.seek(0)
        head = stream.read(_HEAD)
        notes = []
        if int(field(image, "n-pages") or 1) > 1 or head[8:12] == _SEQUENCE:
            notes.append(_FIRST)
        if format == "AVIF" and _has_other_colors(head):
            notes.append("what says that its colors are not those of sRGB was left out")
        if format == "GIF" and _has_comment(stream):
            notes.append("its comment was left out")
        file = _describe(format, image, stream, notes)
        # The orientation of AVIF itself is the valid one, and has been applied.
        return replace(file, orientation=1) if format == "AVIF" else file

    return open_it


def _has_other_colors(head: bytes) -> bool:
    """Return whether an AVIF states primaries or a transfer (ITU-T H.273) unlike those of sRGB."""
    _, tag, colors = head.partition(b"colrnclx")
    if not tag or len(colors) < 4:
        return False
    primaries, transfer = struct.unpack(">HH", colors[:4])
    return primaries not in _USUAL_PRIMARIES or transfer not in _USUAL_TRANSFERS


def _has_comment(stream: BinaryIO) -> bool:
    from PIL.GifImagePlugin import GifImageFile

    stream.seek(0)
    return "comment" in GifImageFile(stream).info


def _open_bmp(stream: BinaryIO, name: str) -> ImageFile:
    """Open a BMP by Pillow, since the binary wheel of libvips cannot."""
    from PIL.BmpImagePlugin import BmpImageFile

    file = BmpImageFile(stream)
    mode = {"1": "L", "L": "L", "RGBA": "RGBA"}.get(file.mode, "RGB")
    stream.seek(0)
    notes = (_NO_PROFILE,) if _BMP_PROFILE in stream.read(_BMP_HEADER) else ()
    return ImageFile(
        "BMP",
        (file.height, file.width),
        lambda: from_array(np.asarray(file.convert(mode))),
        dpi=file.info.get("dpi"),
        notes=notes,
    )


def _describe(format: str, image: Any, stream: BinaryIO, notes: list[str]) -> ImageFile:
    """Return an image of pyvips as an open file."""
    metadata, icc, more = read_metadata(image, format)
    stream.seek(0)
    head = stream.read(_HEAD)
    if icc is None and not notes and not more and any(mark in head for mark in _PROFILES):
        more.append(_NO_PROFILE)
    orientation = int(field(image, "orientation") or 1)
    return ImageFile(
        format,
        (image.height, image.width),
        lambda: image,
        orientation if 1 <= orientation <= 8 else 1,
        metadata,
        icc,
        read_dpi(image),
        (*notes, *more),
    )


_OPENERS: tuple[tuple[Callable[[bytes], bool], Opener], ...] = (
    (lambda head: head.startswith(b"\x89PNG\r\n\x1a\n"), _open_png),
    (lambda head: head.startswith(b"\xff\xd8\xff"), _open_jpeg),
    (lambda head: head.startswith(_TIFF), _open_tiff),
    (
        lambda head: head[:4] == b"RIFF" and head[8:12] == b"WEBP",
        _open_by("WebP", "webp"),
    ),
    (lambda head: head.startswith((b"GIF87a", b"GIF89a")), _open_by("GIF", "gif")),
    (lambda head: head[4:8] == b"ftyp" and b"avi" in head[8:], _open_by("AVIF", "heif")),
    (lambda head: head.startswith(b"BM"), _open_bmp),
)
