"""The directories of a TIFF, and of EXIF data, which is a TIFF without pixels.

The layout is that of TIFF 6.0 (section 2) and of BigTIFF. A directory may point to itself, say
that it has 10^9 tags, or that a tag has 10^9 values: all of it is checked before it is followed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

from ...core.errors import NystraError

MAX_DIRECTORIES = 64
MAX_TAGS = 1024
BYTE, ASCII, SHORT, LONG, RATIONAL, UNDEFINED, LONG8 = 1, 2, 3, 4, 5, 7, 16

_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_SUBFILE_TYPE, _REDUCED = 254, 1
_SIZES = dict(
    zip(range(1, 19), (1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8), strict=True)
)
"""Bytes of a value by its type."""
_WORDS = {5: 4, 10: 4}
"""Types whose values are made of smaller numbers: rationals."""
_WHOLE = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}


class Value(NamedTuple):
    """What a tag holds; ``data`` is little-endian."""

    kind: int
    number: int
    data: bytes


Tags: TypeAlias = Mapping[int, "Value | Tags"]
"""Tag -> what it holds, or the directory that it points to."""


class Entry(NamedTuple):
    """Where a tag's values are."""

    kind: int
    number: int
    place: int


def is_tiff(head: bytes) -> bool:
    """Return whether a file begins as TIFF or BigTIFF does."""
    return head[:4] in _SIGNATURES


class TiffReader:
    """The directories of a TIFF.

    Attributes:
        order: ``<`` if it is little-endian, ``>`` if it is big-endian.
        big: It has the layout of BigTIFF.
        first: Offset of the first directory.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._length = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        head = stream.read(8)
        self.order = "<" if head[:2] == b"II" else ">"
        self.big = head[2:4] in (b"+\0", b"\0+")
        if self.big:
            self.first = self._unpack("Q")[0]
        else:
            self.first = struct.unpack(f"{self.order}I", head[4:8])[0]

    def directories(self, name: str) -> list[dict[int, Entry]]:
        """Return the directories in their order.

        Raises:
            NystraError: They are without end.
            struct.error: One is truncated.
        """
        offset, seen, found = self.first, set[int](), []
        while offset:
            if offset in seen:
                raise NystraError(f"the image {name} is damaged: its directories form a cycle")
            if len(seen) == MAX_DIRECTORIES:
                raise NystraError(
                    f"{name} has more than {MAX_DIRECTORIES} pages, expected a single image"
                )
            seen.add(offset)
            entries, offset = self.directory(offset, name)
            found.append(entries)
        return found

    def directory(self, offset: int, name: str) -> tuple[dict[int, Entry], int]:
        """Return the tags of a directory, and the offset of the next one; see `directories`."""
        self._stream.seek(offset)
        (count,) = self._unpack("Q" if self.big else "H")
        if count > MAX_TAGS:
            raise NystraError(f"the image {name} has {count} tags, expected {MAX_TAGS} at most")
        entries: dict[int, Entry] = {}
        layout, inline = ("HHQ", 8) if self.big else ("HHI", 4)
        for _ in range(count):
            tag, kind, values = self._unpack(layout)
            place = self._stream.tell()
            size = values * _SIZES.get(kind, 0)
            (target,) = self._unpack("Q" if self.big else "I")
            if size > self._length:
                raise NystraError(
                    f"the image {name} is damaged: tag {tag} has {values} values, more than the "
                    "file holds"
                )
            # Of a tag that occurs twice libtiff takes the first one.
            entries.setdefault(tag, Entry(kind, values, place if size <= inline else target))
        return entries, self._unpack("Q" if self.big else "I")[0]

    def value(self, entry: Entry) -> Value:
        """Return what a tag holds.

        Raises:
            struct.error: It lies beyond the end of the file, or has an unknown type.
        """
        width = _SIZES.get(entry.kind, 0)
        self._stream.seek(min(entry.place, self._length))
        data = self._stream.read(entry.number * width)
        if not width or len(data) != entry.number * width:
            raise struct.error("a tag points beyond the end of the file")
        return Value(entry.kind, entry.number, _in_order(data, entry.kind, self.order))

    def numbers(self, entry: Entry | None) -> tuple[int, ...]:
        """Return the whole numbers of a tag; none for other types and where it lacks."""
        if entry is None or entry.kind not in _WHOLE:
            return ()
        return whole_numbers(self.value(entry))

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        layout = self.order + layout
        return struct.unpack(layout, self._stream.read(struct.calcsize(layout)))


def _in_order(data: bytes, kind: int, order: str) -> bytes:
    width = _WORDS.get(kind, _SIZES[kind])
    if order == "<" or width == 1:
        return data
    return np.frombuffer(data, f"u{width}").byteswap().tobytes()


def whole_numbers(value: Value) -> tuple[int, ...]:
    """Return the whole numbers of a value; none for other types."""
    if value.kind not in _WHOLE:
        return ()
    return struct.unpack(f"<{value.number}{_WHOLE[value.kind]}", value.data)


def only_directory(reader: TiffReader, name: str) -> tuple[int, dict[int, Entry]]:
    """Return index and tags of the directory with the only image; reduced copies are ignored.

    Raises:
        NystraError: There are several images, or none.
        struct.error: The directories are truncated.
    """
    found = reader.directories(name)
    pages = [
        index
        for index, entries in enumerate(found)
        if not sum(reader.numbers(entries.get(_SUBFILE_TYPE))) & _REDUCED
    ] or [0]
    if len(pages) != 1 or not found:
        raise NystraError(f"{name} has {len(pages)} pages, expected a single image")
    return pages[0], found[pages[0]]


def directory_bytes(tags: Tags, start: int, *, big: bool = False, order: str = "<") -> bytes:
    """Return a directory, its values and the directories that it points to.

    Args:
        tags: What it holds.
        start: The offset in the file at which it will lie.
        big: In the layout of BigTIFF.
        order: ``<`` for little-endian, ``>`` for big-endian.
    """
    number, inline = ("Q", 8) if big else ("I", 4)
    head = struct.pack(order + ("Q" if big else "H"), len(tags))
    size = len(head) + len(tags) * (20 if big else 12) + inline
    entries, behind = [head], b""
    for tag in sorted(tags):
        value, place = tags[tag], start + size + len(behind)
        if isinstance(value, Value):
            kind, many, data = value
            data = _in_order(data, kind, order)
        else:
            kind, many, data = LONG8 if big else LONG, 1, struct.pack(order + number, place)
            behind += directory_bytes(value, place, big=big, order=order)
        if len(data) > inline:
            behind += data + b"\0" * (len(data) % 2)
            data = struct.pack(order + number, place)
        head_of_it = struct.pack(f"{order}HH{number}", tag, kind, many)
        entries.append(head_of_it + data.ljust(inline, b"\0"))
    return b"".join(entries) + bytes(inline) + behind


def add_tags(stream: BinaryIO, tags: Tags, without: frozenset[int]) -> None:
    """Add tags to the only directory of a little-endian TIFF, which is moved to its end.

    Args:
        stream: Open for reading and writing.
        tags: What to add or replace.
        without: Tags to leave out.
    """
    reader = TiffReader(stream)
    old, _ = reader.directory(reader.first, "the output")
    kept = {tag: reader.value(entry) for tag, entry in old.items() if tag not in without}
    end = stream.seek(0, os.SEEK_END)
    start = end + end % 2
    stream.write(bytes(end % 2) + directory_bytes({**kept, **tags}, start, big=reader.big))
    stream.seek(8 if reader.big else 4)
    stream.write(struct.pack("<Q" if reader.big else "<I", start))
