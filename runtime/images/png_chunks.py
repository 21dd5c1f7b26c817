"""The chunks of a PNG: what they say besides the pixels, and new ones.

The layout is that of the PNG specification, third edition.
"""

from __future__ import annotations

import binascii
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from ...core.errors import NystraError
from .exif import read_block, with_resolution
from .image_data import (
    XMP_KEYWORD,
    Extras,
    ImageData,
    Metadata,
    in_resources,
    left_segments,
    of_aspect,
    plausible_dpi,
)

_MAX_BYTES = 16 << 20
"""Largest chunk besides the pixels that is kept, in bytes."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLORS = ("cICP", "mDCV", "cLLI", "gAMA", "cHRM", "sRGB")
_TEXTS = ("tEXt", "zTXt", "iTXt")
_KEPT = frozenset((*_COLORS, *_TEXTS, "pHYs", "eXIf", "acTL", "iCCP"))
_METERS_PER_INCH = 0.0254
_OF_THE_PIXELS = frozenset(("tRNS", "sBIT", "hIST", "fcTL", "fdAT", "iDOT"))
"""Further chunks that need not be critical to say how the pixels are stored."""
_HEX_EXIF = ("Raw profile type exif", "Raw profile type APP1")
_HEX_XMP, _HEX_IPTC = "Raw profile type xmp", "Raw profile type iptc"


def read_extras(stream: BinaryIO, name: str) -> Extras:
    """Return what the chunks say besides the pixels.

    Raises:
        NystraError: A chunk is truncated, or the checksum of one that is kept is wrong.
    """
    exif, xmp, icc, dpi = b"", b"", b"", None
    notes: list[str] = []
    texts: list[tuple[str, str]] = []
    colors: list[tuple[str, bytes]] = []
    left: dict[str, None] = {}
    iptc: bytes | None = None
    for kind, data in _small_chunks(stream, name):
        if kind not in _KEPT:
            left[kind] = None
        elif data is None:
            notes.append(f"its chunk {kind} is larger than 16 MiB and was left out")
        elif kind == "acTL":
            notes.append("it is animated: only its first frame was read")
        elif kind == "iCCP":
            icc = _inflated(data.partition(b"\0")[2][1:])
            if not icc:
                notes.append("its color profile is damaged and was left out")
        elif kind == "eXIf":
            exif = data
        elif kind == "pHYs" and len(data) == 9:
            across, down = struct.unpack(">II", data[:8])
            if data[8] == 1:
                dpi = plausible_dpi(across * _METERS_PER_INCH, down * _METERS_PER_INCH)
            else:
                notes += of_aspect(across, down)
        elif kind in _COLORS:
            colors.append((kind, data))
        elif kind in _TEXTS:
            text = _text(kind, data)
            if text is None:
                notes.append(f"a text in its chunk {kind} cannot be read and was left out")
            elif text[0] == XMP_KEYWORD:
                xmp = text[1].encode()
            elif text[0] in _HEX_EXIF:
                exif = exif or _from_hex(text[1])
            elif text[0] == _HEX_XMP:
                xmp = xmp or _from_hex(text[1])
            elif text[0] == _HEX_IPTC:
                iptc = in_resources(_from_hex(text[1]))
            else:
                texts.append(text)
    notes += left_segments("chunks", left)
    block, orientation, exif_dpi, more = read_block(exif)
    metadata = Metadata(block, xmp or None, iptc, tuple(texts), tuple(colors))
    return Extras(metadata, orientation, dpi or exif_dpi, (*notes, *more), icc or None)


def with_extras(content: bytes, image: ImageData) -> bytes:
    """Return a PNG with resolution and metadata of an image."""
    extra, behind = [], []
    if image.icc:
        extra.append((b"iCCP", b"ICC Profile\0\0" + zlib.compress(image.icc)))
    if image.dpi:
        per_meter = (round(value / _METERS_PER_INCH) for value in image.dpi)
        extra.append((b"pHYs", struct.pack(">IIB", *per_meter, 1)))
    metadata = image.metadata
    extra += [(kind.encode(), data) for kind, data in metadata.colors]
    if metadata.exif:
        behind.append((b"eXIf", with_resolution(metadata.exif, image.dpi) or b""))
    if metadata.xmp:
        behind.append(_written_text(XMP_KEYWORD, metadata.xmp.decode("utf-8", "replace")))
    if metadata.iptc:
        digits = metadata.iptc.hex()
        lines = (digits[place : place + 72] for place in range(0, len(digits), 72))
        text = "\n".join(("", "iptc", f"{len(metadata.iptc):8}", *lines, ""))
        behind.append(_written_text(_HEX_IPTC, text))
    behind += [_written_text(keyword, text) for keyword, text in metadata.texts]
    place = len(_SIGNATURE) + 25
    head = content[:place] + b"".join(_chunk(*each) for each in (*extra, *behind))
    while content[place + 4 : place + 8] != b"IDAT":  # the encoder's own resolution is left out
        end = place + 12 + int.from_bytes(content[place : place + 4], "big")
        if content[place + 4 : place + 8] != b"pHYs":
            head += content[place:end]
        place = end
    return head + content[place:]


def _small_chunks(stream: BinaryIO, name: str) -> Iterator[tuple[str, bytes | None]]:
    """Yield the chunks besides the pixels; of `_KEPT` with their data, unless it is too large."""
    stream.seek(len(_SIGNATURE))
    kind = ""
    while kind != "IEND":
        code, length = _head(stream, name)
        kind = code.decode("latin-1")
        if kind not in _KEPT or length > _MAX_BYTES:
            stream.seek(length + 4, 1)
            if kind[0].islower() and kind not in _OF_THE_PIXELS:
                yield kind, None
        else:
            data = stream.read(length)
            if stream.read(4) != struct.pack(">I", zlib.crc32(code + data)):
                raise _damaged(name, f"the checksum of its chunk {kind!r} is wrong")
            yield kind, data


def _text(kind: str, data: bytes) -> tuple[str, str] | None:
    keyword, _, rest = data.partition(b"\0")
    packed, encoding = kind == "zTXt", "latin-1"
    try:
        if kind == "zTXt":
            rest = rest[1:]
        elif kind == "iTXt":
            packed, encoding = rest[0] == 1, "utf-8"
            rest = rest[2:].split(b"\0", 2)[2]  # language and translated keyword
        text = (_inflated(rest) if packed else rest).decode(encoding)
    except (UnicodeDecodeError, IndexError):
        return None
    return None if packed and not text else (keyword.decode("latin-1"), text)


def _inflated(data: bytes) -> bytes:
    """Return decompressed data; nothing if it is damaged or too much."""
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(data, _MAX_BYTES)
    except zlib.error:
        return b""
    return content if inflater.eof else b""


def _written_text(keyword: str, text: str) -> tuple[bytes, bytes]:
    name = keyword.encode("latin-1", "replace")[:79]
    try:
        if keyword != XMP_KEYWORD:
            return b"tEXt", name + b"\0" + text.encode("latin-1")
    except UnicodeEncodeError:
        pass
    return b"iTXt", name + b"\0\0\0\0\0" + text.encode("utf-8")


def _from_hex(text: str) -> bytes:
    """Return the EXIF data that older programs write as a text: a name, a length, digits."""
    try:
        return binascii.unhexlify("".join(text.split("\n")[3:]))
    except (binascii.Error, ValueError):
        return b"damaged"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _head(stream: BinaryIO, name: str) -> tuple[bytes, int]:
    head = stream.read(8)
    if len(head) != 8:
        raise _damaged(name, "it is truncated")
    length, kind = struct.unpack(">I4s", head)
    return kind, length


def _damaged(name: str, what: str) -> NystraError:
    return NystraError(f"the image {name} is damaged or truncated: {what}")
