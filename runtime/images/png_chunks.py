"""Whether the chunks of a PNG are complete and hold exactly the pixels that its header states.

Decoders skip the checksums of the pixels, ignore surplus rows, and some fill missing ones. The
layout is that of the PNG specification, third edition (sections 5, 7 and 8).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from ...core.errors import NystraError
from .inflating import inflated_length

_STEP = 1 << 20
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_PLAIN = ((0, 0, 1, 1),)
_ADAM7 = (
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8)),
    *((2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
)
"""Of each pass of an interlaced PNG: its first column and row, and the steps between them."""


def check_chunks(stream: BinaryIO, name: str) -> None:
    """Find out whether a PNG is whole.

    Args:
        stream: The file; its position afterwards is undefined.
        name: What to call it in the messages.

    Raises:
        NystraError: A chunk is truncated or fails its checksum, or the pixels are more or fewer
            than its header says.
    """
    stream.seek(0)
    if stream.read(len(_SIGNATURE)) != _SIGNATURE:
        raise _damaged(name, "it has no PNG signature")
    kind, length = _head(stream, name)
    header = stream.read(length) if (kind, length) == (b"IHDR", 13) else b""
    if len(header) != 13 or stream.read(4) != struct.pack(">I", zlib.crc32(kind + header)):
        raise _damaged(name, "the checksum of its header is wrong")
    expected = _raw_bytes(header, name)
    try:
        held = inflated_length(_pixel_data(stream, name), expected)
    except zlib.error as error:
        raise _damaged(name, str(error)) from error
    if held != expected:
        more = "it decompresses to more bytes than its pixels need"
        raise _damaged(name, more if held > expected else f"it holds {held} of {expected} bytes")


def _pixel_data(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield what the IDAT chunks hold; all chunks up to the last one are checked."""
    kind = b""
    while kind != b"IEND":
        kind, rest = _head(stream, name)
        checksum = zlib.crc32(kind)
        while rest:
            part = stream.read(min(rest, _STEP))
            if not part:
                raise _damaged(name, "it is truncated")
            rest -= len(part)
            checksum = zlib.crc32(part, checksum)
            if kind == b"IDAT":
                yield part
        if stream.read(4) != struct.pack(">I", checksum):
            raise _damaged(name, f"the checksum of its chunk {kind!r} is wrong")


def _head(stream: BinaryIO, name: str) -> tuple[bytes, int]:
    head = stream.read(8)
    if len(head) != 8:
        raise _damaged(name, "it is truncated")
    length, kind = struct.unpack(">I4s", head)
    return kind, length


def _raw_bytes(header: bytes, name: str) -> int:
    """Return the bytes of all rows with their filters, before deflate."""
    width, height, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", header)
    if color not in _SAMPLES or depth not in (1, 2, 4, 8, 16) or interlace > 1:
        raise _damaged(name, f"it has color type {color}, {depth} bits, interlace {interlace}")
    bits = _SAMPLES[color] * depth
    total = 0
    for left, top, across, down in _ADAM7 if interlace else _PLAIN:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + -(-columns * bits // 8))
    return total


def _damaged(name: str, what: str) -> NystraError:
    return NystraError(f"the image {name} is damaged or truncated: {what}")
