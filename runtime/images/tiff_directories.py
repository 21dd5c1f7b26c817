"""The directories of a TIFF, walked within bounds before any library believes them.

A directory may point to itself, say that it has 10^9 tags, or that a tag has 10^9 values; the
libraries follow. The layout is that of TIFF 6.0 (section 2) and of BigTIFF.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

from ...core.errors import NystraError

MOST_DIRECTORIES = 64
MOST_TAGS = 1024

_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_SUBFILE_TYPE, _REDUCED = 254, 1
# Bytes of a value by its type, 1 to 18.
_SIZES = dict(
    zip(range(1, 19), (1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8), strict=True)
)


def is_tiff(stream: BinaryIO) -> bool:
    """Return whether a file begins as TIFF or BigTIFF does; the stream is at its beginning."""
    head = stream.read(4)
    stream.seek(0)
    return head in _SIGNATURES


def only_directory(stream: BinaryIO, name: str) -> int:
    """Return which directory holds the only picture; reduced copies of it do not count.

    Args:
        stream: A TIFF, at its beginning; it is left there.
        name: What to call it in the messages.

    Raises:
        NystraError: The directories are damaged, without end, or hold several pictures.
    """
    try:
        reduced = _walk(stream, name)
    except struct.error as error:
        raise NystraError(f"the picture {name} is damaged or truncated: {error}") from error
    finally:
        stream.seek(0)
    pages = [index for index, small in enumerate(reduced) if not small] or [0]
    if len(pages) != 1 or not reduced:
        raise NystraError(f"{name} has {len(pages)} pages, expected a single picture")
    return pages[0]


def _walk(stream: BinaryIO, name: str) -> list[bool]:
    """Return of each directory whether it is a reduced copy of another picture."""
    length = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    head = stream.read(8)
    order = "<" if head[:2] == b"II" else ">"
    big = head[2:4] in (b"+\0", b"\0+")
    offset = _unpack(stream, f"{order}Q") if big else struct.unpack(f"{order}I", head[4:8])[0]
    seen: list[int] = []
    reduced: list[bool] = []
    while offset:
        if offset in seen:
            raise NystraError(f"the picture {name} is damaged: its directories go in a circle")
        if len(seen) == MOST_DIRECTORIES:
            raise NystraError(
                f"{name} has more than {MOST_DIRECTORIES} pages, expected a single picture"
            )
        seen.append(offset)
        stream.seek(offset)
        count = _unpack(stream, f"{order}Q" if big else f"{order}H")
        if count > MOST_TAGS:
            raise NystraError(f"the picture {name} has {count} tags, expected {MOST_TAGS} at most")
        reduced.append(False)
        tags: set[int] = set()
        for _ in range(count):
            tag, kind, values, value = _entry(stream, order, big)
            if tag in tags:  # of which one library takes the first and another one the last
                raise NystraError(f"the picture {name} is damaged: tag {tag} is there twice")
            tags.add(tag)
            if values * _SIZES.get(kind, 0) > length:
                raise NystraError(
                    f"the picture {name} is damaged: tag {tag} has {values} values, more than the "
                    "file holds"
                )
            if tag == _SUBFILE_TYPE:
                reduced[-1] = bool(value & _REDUCED)
        offset = _unpack(stream, f"{order}Q" if big else f"{order}I")
    return reduced


def _entry(stream: BinaryIO, order: str, big: bool) -> tuple[int, int, int, int]:
    """Return the tag, type, number of values, and first value where it is one LONG."""
    layout = f"{order}HHQ8s" if big else f"{order}HHI4s"
    tag, kind, values, inline = struct.unpack(layout, stream.read(struct.calcsize(layout)))
    first = struct.unpack(f"{order}H", inline[:2]) if kind == 3 else None
    return tag, kind, values, (first or struct.unpack(f"{order}I", inline[:4]))[0]


def _unpack(stream: BinaryIO, layout: str) -> int:
    number: int = struct.unpack(layout, stream.read(struct.calcsize(layout)))[0]
    return number
