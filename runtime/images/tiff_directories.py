"""The directories of a TIFF, checked before any library reads them.

A directory may point to itself, say that it has 10^9 tags, or that a tag has 10^9 values; the
libraries follow. The layout is that of TIFF 6.0 (section 2) and of BigTIFF.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from typing import BinaryIO

from ...core.errors import NystraError

MOST_DIRECTORIES = 64
MOST_TAGS = 1024

_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_SUBFILE_TYPE, _REDUCED = 254, 1
_SHORT, _LONG = 3, 4
_NUMBERS = {
    **dict.fromkeys((256, 257, 277, 278, 322, 323), (1, 2**32 - 1)),
    259: (1, 65535),
    262: (0, 65535),
    266: (1, 2),
    284: (1, 2),
    317: (1, 3),
}
"""Tags with one integer that determine the layout of a page, and the range of each: sizes,
compression, colors, order of bits and of planes, predictor. Libraries interpret other types
differently.
"""

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
    """Return the index of the directory with the only image; reduced copies are ignored.

    Args:
        stream: A TIFF, at its beginning; it is left there.
        name: What to call it in the messages.

    Raises:
        NystraError: The directories are damaged, without end, or hold several images.
    """
    try:
        directories = _walk(stream, name)
    except struct.error as error:
        raise NystraError(f"the image {name} is damaged or truncated: {error}") from error
    finally:
        stream.seek(0)
    pages = [index for index, each in enumerate(directories) if not each.reduced] or [0]
    if len(pages) != 1 or not directories:
        raise NystraError(f"{name} has {len(pages)} pages, expected a single image")
    if fault := directories[pages[0]].fault:
        raise NystraError(f"the image {name} is damaged: {fault}")
    return pages[0]


@dataclass
class _Directory:
    """The relevant parts of a directory.

    Attributes:
        reduced: It is a smaller copy of another image.
        tags: Those that it has.
        fault: What is wrong with one of `_NUMBERS`, or "".
    """

    reduced: bool = False
    tags: set[int] = field(default_factory=set)
    fault: str = ""

    def add(self, tag: int, kind: int, values: int, value: int) -> None:
        """Take an entry."""
        if tag in self.tags:  # of which one library takes the first and another one the last
            self.fault = f"tag {tag} occurs twice"
        self.tags.add(tag)
        if tag == _SUBFILE_TYPE:
            self.reduced = bool(value & _REDUCED)
        if tag in _NUMBERS:
            least, most = _NUMBERS[tag]
            if kind not in (_SHORT, _LONG) or values != 1 or not least <= value <= most:
                self.fault = f"tag {tag} is not a whole number from {least} to {most}"


def _walk(stream: BinaryIO, name: str) -> list[_Directory]:
    """Return the directories in their order."""
    length = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    head = stream.read(8)
    order = "<" if head[:2] == b"II" else ">"
    big = head[2:4] in (b"+\0", b"\0+")
    offset = _unpack(stream, f"{order}Q") if big else struct.unpack(f"{order}I", head[4:8])[0]
    seen: list[int] = []
    directories: list[_Directory] = []
    while offset:
        if offset in seen:
            raise NystraError(f"the image {name} is damaged: its directories form a cycle")
        if len(seen) == MOST_DIRECTORIES:
            raise NystraError(
                f"{name} has more than {MOST_DIRECTORIES} pages, expected a single image"
            )
        seen.append(offset)
        stream.seek(offset)
        count = _unpack(stream, f"{order}Q" if big else f"{order}H")
        if count > MOST_TAGS:
            raise NystraError(f"the image {name} has {count} tags, expected {MOST_TAGS} at most")
        directories.append(_Directory())
        for _ in range(count):
            tag, kind, values, value = _entry(stream, order, big)
            if values * _SIZES.get(kind, 0) > length:
                raise NystraError(
                    f"the image {name} is damaged: tag {tag} has {values} values, more than the "
                    "file holds"
                )
            directories[-1].add(tag, kind, values, value)
        offset = _unpack(stream, f"{order}Q" if big else f"{order}I")
    return directories


def _entry(stream: BinaryIO, order: str, big: bool) -> tuple[int, int, int, int]:
    """Return the tag, type, number of values, and the first value if it is one LONG."""
    layout = f"{order}HHQ8s" if big else f"{order}HHI4s"
    tag, kind, values, inline = struct.unpack(layout, stream.read(struct.calcsize(layout)))
    first = struct.unpack(f"{order}H", inline[:2]) if kind == _SHORT else None
    return tag, kind, values, (first or struct.unpack(f"{order}I", inline[:4]))[0]


def _unpack(stream: BinaryIO, layout: str) -> int:
    number: int = struct.unpack(layout, stream.read(struct.calcsize(layout)))[0]
    return number
