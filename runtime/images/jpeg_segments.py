"""The segments of a JPEG: what they say besides the pixels, new ones, and an early end.

libjpeg silently fills what is missing after the end marker. Without the marker it asks for more
data instead, which is reported. Surplus data cannot be distinguished from the padding that
cameras write, nor a truncated progressive file from one with fewer scans: those are read as they
are. The layout is that of ITU-T T.81 (annex B), JFIF 1.02, Exif 2.32 and XMP part 3.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from .exif import read_block, with_resolution
from .image_data import (
    COMMENT,
    Extras,
    ImageData,
    Metadata,
    comment,
    decoded,
    left_segments,
    of_aspect,
    plausible_dpi,
)

_SEQUENTIAL = (0xC0, 0xC1)
_SCAN, _COMMENT = 0xDA, 0xFE
_APP0, _APP1, _APP2, _APP13, _APP15 = 0xE0, 0xE1, 0xE2, 0xED, 0xEF
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_MOVIE = re.compile(rb"ftyp(?:mp4|isom|qt  )")
_LOOKED_AHEAD = b"\xff\x00" * 8
"""The bits that the decoder may have read after the last pixel: 64 ones, which are no code."""
_EXIF, _IPTC, _JFIF = b"Exif\0\0", b"Photoshop 3.0\0", b"JFIF\0"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_FURTHER = b"MPF\0"
_MORE_XMP = b"http://ns.adobe.com/xmp/extension/\0"
_PROFILE, _PART = b"ICC_PROFILE\0", 65_000
_PER_INCH = {1: 1.0, 2: 2.54}
_OF_THE_PIXELS = (_JFIF, b"JFXX\0", b"ICC_PROFILE\0", b"Adobe", b"Ducky")
"""How segments begin that say how the pixels are stored, and that of the profile."""


def read_extras(data: bytes) -> Extras:
    """Return what the segments before the scan say besides the pixels."""
    exif = xmp = iptc = None
    dpi: tuple[float, float] | None = None
    texts: list[tuple[str, str]] = []
    notes: list[str] = []
    left: dict[str, None] = {}
    for marker, start, end in _segments(data):
        body = data[start:end]
        if marker == _COMMENT:
            texts.append((COMMENT, decoded(body)))
        elif marker == _APP0 and body.startswith(_JFIF) and len(body) >= 12:
            unit, across, down = struct.unpack(">BHH", body[7:12])
            scale = _PER_INCH.get(unit, 0.0)
            dpi = plausible_dpi(across * scale, down * scale)
            notes += [] if scale else of_aspect(down, across)
        elif marker == _APP1 and body.startswith(_EXIF):
            exif = exif or body
        elif marker == _APP1 and body.startswith(_XMP):
            xmp = body[len(_XMP) :]
        elif marker == _APP1 and body.startswith(_MORE_XMP):
            notes.append("the part of its XMP beyond 64 KiB was left out")
        elif marker == _APP2 and body.startswith(_FURTHER):
            notes.append("it holds further images, such as a gain map, which were left out")
        elif marker == _APP13 and body.startswith(_IPTC):
            iptc = (iptc or b"") + body[len(_IPTC) :]
        elif _APP0 <= marker <= _APP15 and not body.startswith(_OF_THE_PIXELS):
            left[f"APP{marker - _APP0}"] = None
    notes += left_segments("segments", left)
    if _MOVIE.search(data):
        notes.append("the video behind its pixels, as in motion photos, was left out")
    block, orientation, exif_dpi, more = read_block(exif)
    metadata = Metadata(block, xmp, iptc, tuple(texts))
    return Extras(metadata, orientation, dpi or exif_dpi, (*dict.fromkeys(notes), *more))


def with_extras(content: bytes, image: ImageData) -> bytes:
    """Return a JPEG, as the encoder writes it, with resolution and metadata of an image."""
    metadata = image.metadata
    dpi = [min(max(round(value), 1), 65535) for value in image.dpi or (1, 1)]
    jfif = struct.pack(">5sHBHHBB", _JFIF, 0x0101, 1 if image.dpi else 0, *dpi, 0, 0)
    segments = [_segment(_APP0, jfif)]
    profile = image.icc or b""
    starts = range(0, len(profile), _PART)
    for number, start in enumerate(starts, 1):
        place = bytes((number, len(starts)))
        segments.append(_segment(_APP2, _PROFILE + place + profile[start : start + _PART]))
    if metadata.exif:
        block = with_resolution(metadata.exif, image.dpi) or b""
        segments.append(_segment(_APP1, _EXIF + block))
    if metadata.xmp:
        segments.append(_segment(_APP1, _XMP + metadata.xmp))
    if metadata.iptc:
        segments.append(_segment(_APP13, _IPTC + metadata.iptc))
    segments += [_segment(_COMMENT, comment(text)) for text in metadata.texts]
    start = 2
    if content[3] == _APP0:  # the encoder's own
        start = 4 + int.from_bytes(content[4:6], "big")
    return content[:2] + b"".join(segments) + content[start:]


def without_end(data: bytes) -> bytes:
    """Return a sequential JPEG up to the end of its only scan, and other files as they are."""
    components = 0
    for marker, start, end in _segments(data):
        if marker in _SEQUENTIAL and end - start > 5:
            components = data[start + 5]
        if marker == _SCAN:
            found = _MARKER.search(data, end)
            if components == data[start] and found is not None:
                return data[: found.start()] + _LOOKED_AHEAD
    return data


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield marker, start and end of the segments up to the first scan."""
    position, marker = 2, 0
    while position + 4 < len(data) and data[position] == 0xFF and marker != _SCAN:
        marker = data[position + 1]
        if marker == 0xFF:  # padding
            position += 1
            continue
        end = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        yield marker, position + 4, end
        position = end


def _segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body
