"""The chunks of a PNG that libvips does not limit, or does not keep (PNG, third edition)."""

from __future__ import annotations

import io
import os
import struct
import zlib
from typing import BinaryIO

from ...core.errors import NystraError
from .image_data import MAX_METADATA

_METADATA = ("tEXt", "zTXt", "iTXt", "iCCP", "eXIf")
_MAX_CHUNKS = 500
"""Of metadata; libpng keeps 1000."""
_PRESERVED = frozenset((*_METADATA, "tRNS", "sBIT", "hIST", "sRGB", "fcTL", "fdAT", "iDOT"))
"""Chunks that libvips keeps, or that say how the pixels are stored; so do all in capitals."""
_STANDARD = {
    "gAMA": struct.pack(">I", 45455),
    "cHRM": struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000),
    "cICP": bytes((1, 13, 0, 1)),
}
"""Chunks that say what is assumed of a PNG without them: sRGB."""


def limit_metadata(stream: BinaryIO, name: str) -> tuple[BinaryIO, list[str]]:
    """Return a PNG whose metadata takes `MAX_METADATA` bytes unpacked, and what was left out.

    libvips would unpack all texts: 800 kB of them took 2.3 GB. Where chunks are left out, the file
    is a copy in memory without them.

    Raises:
        NystraError: It is truncated.
    """
    notes: list[str] = []
    unknown: set[str] = set()
    pieces: list[tuple[int, int]] = []
    room, count = MAX_METADATA, 0
    end = stream.seek(0, os.SEEK_END)
    start, place, kind = 0, 8, ""
    while kind != "IEND":
        stream.seek(place)
        head = stream.read(8)
        if len(head) != 8:
            raise NystraError(f"the image {name} is damaged or truncated: it has no end")
        length, code = struct.unpack(">I4s", head)
        kind, following = code.decode("latin-1"), min(place + 12 + length, end)
        if kind == "acTL":
            notes.append("it is animated: only its first frame was read")
        elif kind in _METADATA:
            count += 1
            fits = length <= room and count <= _MAX_CHUNKS
            size = _measure_unpacked(stream.read(length), kind, room) if fits else 0
            if not fits or size > room:
                notes.append(f"its metadata in {kind} beyond 1 MiB was left out")
                pieces.append((start, place))
                start = following
            else:
                room -= size
        elif kind[0].islower() and _is_lost(kind, stream.read(min(length, 64))):
            unknown.add(kind)
        place = following
    if unknown:
        notes.append(f"its chunks {', '.join(sorted(unknown)[:8])} were left out")
    if pieces:
        stream = _join(stream, [*pieces, (start, end)])
    return stream, list(dict.fromkeys(notes))


def _is_lost(kind: str, data: bytes) -> bool:
    if kind == "pHYs":  # without a unit it is the aspect of a pixel
        return data[8:] != b"\1" and data[:4] != data[4:8]
    return kind not in _PRESERVED and data != _STANDARD.get(kind)


def _measure_unpacked(data: bytes, kind: str, limit: int) -> int:
    """Return the bytes of a chunk as libvips unpacks it; counting ends above ``limit``."""
    if kind == "iTXt":
        _, _, rest = data.partition(b"\0")
        packed = rest[2:].split(b"\0", 2)[-1] if rest[:1] == b"\1" else b""
    else:
        packed = data.partition(b"\0")[2][1:] if kind in ("zTXt", "iCCP") else b""
    try:
        unpacked = zlib.decompressobj().decompress(packed, limit + 1) if packed else b""
    except zlib.error:
        unpacked = b""
    return max(len(unpacked), len(data))


def _join(stream: BinaryIO, pieces: list[tuple[int, int]]) -> BinaryIO:
    content = io.BytesIO()
    for start, end in pieces:
        stream.seek(start)
        content.write(stream.read(end - start))
    return content
