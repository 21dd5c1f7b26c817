"""Profile, EXIF and XMP in a WebP: its chunks are those of RIFF (RFC 9649, section 2)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .exif import with_resolution
from .image_data import ImageData

_EXIF, _XMP, _ALPHA, _ICC = 0x08, 0x04, 0x10, 0x20


def with_extras(content: bytes, image: ImageData) -> bytes:
    """Return a WebP with resolution and metadata of an image."""
    exif = with_resolution(image.metadata.exif, image.dpi)
    xmp, icc = image.metadata.xmp, image.icc
    if not (exif or xmp or icc):
        return content
    chunks = dict(_chunks(content))
    flags = (_EXIF if exif else 0) | (_XMP if xmp else 0) | (_ICC if icc else 0)
    flags |= _ALPHA if image.alpha is not None else 0
    height, width = image.size
    header = struct.pack("<I", flags) + b"".join(
        (side - 1).to_bytes(3, "little") for side in (width, height)
    )
    chunks.pop(b"VP8X", None)
    ordered = ((b"VP8X", header), (b"ICCP", icc), *chunks.items(), (b"EXIF", exif), (b"XMP ", xmp))
    body = b"".join(_chunk(kind, data) for kind, data in ordered if data)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 12
    while place + 8 <= len(content):
        kind, length = struct.unpack_from("<4sI", content, place)
        yield kind, content[place + 8 : place + 8 + length]
        place += 8 + length + length % 2


def _chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
