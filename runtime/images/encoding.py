"""Writes images as the content of files, by libvips."""

from __future__ import annotations

import io
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import NystraError
from ...core.files.temporary import temporary_path
from . import png_chunks
from .exif import RESOLUTION, resolution_tags, tags_of, with_resolution
from .image_data import ImageData, quantize
from .image_file import from_array, libvips
from .tiff_directories import BYTE, LONG8, SHORT, UNDEFINED, Value, add_tags, directory_bytes

_EVERY_FILTER = 0xF8
_PLAIN_HEADER = 512
_HEAD = 1 << 16
"""Bytes of a file in which the encoder's own header ends."""
_LARGE_TIFF = 4_000_000_000
_XMP, _PHOTOSHOP, _ICC = 700, 34377, 34675
_WEBP_EXIF, _WEBP_XMP, _WEBP_ALPHA, _WEBP_ICC = 0x08, 0x04, 0x10, 0x20
"""Flags of the header of a WebP."""


def encode(image: ImageData, kind: str, quality: int | None) -> bytes:
    """Return an image as the content of a file; see `images.encode_image`.

    Args:
        image: With nothing that the format cannot hold.
        kind: ``PNG``, ``JPEG``, ``TIFF`` or ``WebP``.
        quality: As in `images.encode_image`.

    Raises:
        Exception: Whatever pyvips raises.
    """
    channels = image.pixels
    if image.alpha is not None:
        channels = np.concatenate([channels, image.alpha[:, :, None]], axis=2)
    values = quantize(channels, image.bits)
    picture = from_array(values)
    save, options = _saver(kind, quality, values.nbytes)
    content: bytes = getattr(picture, f"{save}save_buffer")(keep="none", **options)
    if kind == "TIFF":
        stream = io.BytesIO(content)
        _add_tags(stream, image)
        return stream.getvalue()
    return _WITH_EXTRAS[kind](content, image)


def plain_header(size: tuple[int, int], bands: int, bits: int) -> bytes:
    """Return what stands before rows of pixels in a TIFF without compression.

    libvips reads such a file a few rows at a time; a file without a header it maps into memory.
    """
    height, width = size
    numbers = {
        256: width,
        257: height,
        259: 1,
        262: 2 if bands == 3 else 1,
        273: _PLAIN_HEADER,
        277: bands,
        278: height,
        279: height * width * bands * bits // 8,
        284: 1,
    }
    tags: dict[int, Any] = {
        tag: Value(LONG8, 1, struct.pack("<Q", number)) for tag, number in numbers.items()
    }
    tags[258] = Value(SHORT, bands, struct.pack(f"<{bands}H", *[bits] * bands))
    header = b"II+\0" + struct.pack("<HHQ", 8, 0, 16) + directory_bytes(tags, 16, big=True)
    return header.ljust(_PLAIN_HEADER, b"\0")


def save_file(
    raw: Path, path: Path, size: tuple[int, int], image: ImageData, kind: str, quality: int | None
) -> None:
    """Write an image file from a file of its pixels.

    Args:
        raw: A TIFF that begins with `plain_header`.
        path: The image file.
        size: Height and width.
        image: As in `strips.write_strips`.
        kind: ``PNG``, ``JPEG`` or ``TIFF``.
        quality: As in `images.encode_image`.

    Raises:
        NystraError: It cannot be written.
    """
    (height, width), bands = size, image.pixels.shape[2]
    vips = libvips()
    try:
        with raw.open("rb", buffering=0) as stream:
            picture = vips.Image.tiffload_source(
                vips.Source.new_from_descriptor(stream.fileno()),
                access="sequential",
                unlimited=True,
            )
        save, options = _saver(kind, quality, height * width * bands * image.bits // 8)
        getattr(picture, f"{save}save")(os.fsencode(path), keep="none", **options)
    except vips.Error as error:
        reason = " ".join(str(error).split())[:300]
        raise NystraError(f"{path} cannot be written: {reason}") from error
    if kind == "TIFF":
        with path.open("r+b") as stream:
            _add_tags(stream, image)
        return
    # The chunks or segments of the metadata go between the header and the pixels.
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
        longer = _WITH_EXTRAS[kind](head, image)
        if longer == head:
            return
        other = temporary_path(path)
        try:
            with other.open("wb") as copy:
                copy.write(longer)
                shutil.copyfileobj(stream, copy, 1 << 20)
            other.replace(path)
        finally:
            other.unlink(missing_ok=True)


def _saver(kind: str, quality: int | None, size: int) -> tuple[str, dict[str, Any]]:
    if kind == "PNG":
        return "png", {"compression": 3, "filter": _EVERY_FILTER}
    if kind == "JPEG":
        return "jpeg", {"Q": 95 if quality is None else quality, "subsample_mode": "off"}
    if kind == "WebP":
        exact = {"exact": True, "lossless": quality is None}
        return "webp", exact if quality is None else {**exact, "Q": quality}
    return "tiff", {
        "compression": "deflate",
        "predictor": "horizontal",
        "bigtiff": size > _LARGE_TIFF,
    }


def _add_tags(stream: Any, image: ImageData) -> None:
    metadata = image.metadata
    tags: dict[int, Any] = tags_of(metadata.exif) if metadata.exif else {}
    for tag, kind, data in (
        (_XMP, BYTE, metadata.xmp),
        (_PHOTOSHOP, BYTE, metadata.iptc),
        (_ICC, UNDEFINED, image.icc),
    ):
        if data:
            tags[tag] = Value(kind, len(data), data)
    if image.dpi:
        tags |= resolution_tags(image.dpi)
    add_tags(stream, tags, RESOLUTION)


def _webp_with_extras(content: bytes, image: ImageData) -> bytes:
    """Return a WebP with resolution and metadata of an image, as chunks (RFC 9649, section 2)."""
    exif = with_resolution(image.metadata.exif, image.dpi)
    xmp, icc = image.metadata.xmp, image.icc
    if not (exif or xmp or icc):
        return content
    chunks = dict(_webp_chunks(content))
    flags = (_WEBP_EXIF if exif else 0) | (_WEBP_XMP if xmp else 0) | (_WEBP_ICC if icc else 0)
    flags |= _WEBP_ALPHA if image.alpha is not None else 0
    height, width = image.size
    header = struct.pack("<I", flags) + b"".join(
        (side - 1).to_bytes(3, "little") for side in (width, height)
    )
    chunks.pop(b"VP8X", None)
    ordered = ((b"VP8X", header), (b"ICCP", icc), *chunks.items(), (b"EXIF", exif), (b"XMP ", xmp))
    body = b"".join(_webp_chunk(kind, data) for kind, data in ordered if data)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def _webp_chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 12
    while place + 8 <= len(content):
        kind, length = struct.unpack_from("<4sI", content, place)
        yield kind, content[place + 8 : place + 8 + length]
        place += 8 + length + length % 2


def _webp_chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def _jpeg_with_extras(content: bytes, image: ImageData) -> bytes:
    from .jpeg_segments import with_extras

    return with_extras(content, image)


_WITH_EXTRAS = {
    "PNG": png_chunks.with_extras,
    "JPEG": _jpeg_with_extras,
    "WebP": _webp_with_extras,
}
