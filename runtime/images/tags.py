"""The tags of a TIFF, and of EXIF data, which is a TIFF without pixels.

libvips reads both. What it does not say is read here: which directory of a TIFF is its image, which
tags are not kept, and whether entries of EXIF data share their bytes. The layout is that of TIFF
6.0 (section 2), of BigTIFF, and of Exif 2.32 (section 4.6).
"""

from __future__ import annotations

import io
import itertools
import os
import shlex
import struct
from typing import Any, BinaryIO, NamedTuple

from ...core.errors import NystraError
from ...core.files.kinds import FileKind

_MAX_DIRECTORIES, _MAX_TAGS = 64, 1024
_POINTERS = (34665, 34853, 40965)
_REDUCED, _YCBCR, _JPEG, _LARGE_TILE = 1, 6, 7, 1 << 24
_FAX_OR_JPEG = (2, 3, 4, _JPEG)
_COLORS = (0, 1, 2, 3, 5, _YCBCR)
_COMPRESSIONS = (1, 5, 8, 32773, 32946, *_FAX_OR_JPEG)
_PIXELS_A_BYTE = 1 << 14
"""More than the compressions whose end is found can express, of 1 bit."""
_RAW = (32803, 34892)
"""Photometric interpretations of DNG: of a color filter array, and linear."""
_SIZES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""Bytes of a value by its type; 1 for others."""
_NUMBERS = {3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_OF_THE_PIXELS = (*range(254, 260), 262, 266, 273, 274, *range(277, 285), *range(288, 294), 296)
_OF_THE_PIXELS += (297, 305, *range(317, 326), 330, *range(338, 342), 347, *range(512, 533))
_PRESERVED = frozenset((*_OF_THE_PIXELS, 270, 700, 33723, 34377, 34675))
"""Those, and the ones that libvips keeps."""


class Entry(NamedTuple):
    """A tag: number, place and bytes of its values, and the first of whole numbers."""

    length: int
    place: int
    size: int
    first: int


class TagReader:
    """The directories of a TIFF.

    Attributes:
        first: Offset of the first one.
        length: Bytes of the file.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name = stream, name
        self.length = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        head = stream.read(8)
        self._order = "<" if head[:2] == b"II" else ">"
        self._big = head[2:4] in (b"+\0", b"\0+")
        self._offset = "Q" if self._big else "I"
        if not self._big:
            stream.seek(4)
        (self.first,) = self._unpack(self._offset)

    def directory(self, offset: int) -> tuple[dict[int, Entry], int]:
        """Return the tags of a directory, and the offset of the next one; 0: there is none.

        Raises:
            NystraError: It has too many tags, or their values lie beyond the end of the file.
            struct.error: It is truncated.
        """
        self._stream.seek(min(offset, self.length))
        (count,) = self._unpack("Q" if self._big else "H")
        if count > _MAX_TAGS:
            raise NystraError(f"{self._name} has {count} tags, expected {_MAX_TAGS} at most")
        entries: dict[int, Entry] = {}
        for _ in range(count):
            tag, kind, values = self._unpack("HH" + self._offset)
            place, size = self._stream.tell(), values * _SIZES.get(kind, 1)
            field = self._stream.read(struct.calcsize(self._order + self._offset))
            if size > len(field):
                (place,) = struct.unpack(self._order + self._offset, field)
            if place + size > self.length:
                raise NystraError(
                    f"the image {self._name} is damaged: tag {tag} has {values} values, more than "
                    "the file holds"
                )
            layout = self._order + _NUMBERS.get(kind, "B")
            (number,) = struct.unpack_from(layout, field.ljust(8, b"\0"))
            # Of a tag that occurs twice libtiff takes the first one.
            entries.setdefault(tag, Entry(values, place, size, number))
        return entries, self._unpack(self._offset)[0]

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        layout = self._order + layout
        return struct.unpack(layout, self._stream.read(struct.calcsize(layout)))


def _split(name: str) -> str:
    """Return the command of a shell that writes the pages of a file to a folder, by pyvips."""
    source = name if os.path.isfile(name) else "IN.tif"
    code = (
        f"import pyvips; name = {source!r}; load = pyvips.Image.tiffload; "
        "[load(name, page=n).tiffsave(f'pages/{n:04}.tif', keep='icc') "
        "for n in range(load(name).get('n-pages'))]"
    )
    return f"mkdir pages && python -c {shlex.quote(code)}"


def only_page(stream: BinaryIO, name: str) -> tuple[int, str, list[str]]:
    """Return the index of the only image of a TIFF, what libvips is to fail on, and notes.

    Reduced copies are ignored.

    Raises:
        NystraError: There are several images, or it is of a kind that is not supported.
        struct.error: The directories are truncated.
    """
    reader = TagReader(stream, name)
    offset, seen = reader.first, set[int]()
    pages: list[tuple[int, dict[int, Entry]]] = []
    while offset and offset not in seen and len(seen) < _MAX_DIRECTORIES:
        entries, following = reader.directory(offset)
        if not _first(entries, 254) & _REDUCED:
            pages.append((len(seen), entries))
        seen.add(offset)
        offset = following
    if offset in seen:
        raise NystraError(f"the image {name} is damaged: its directories form a cycle")
    if offset or len(pages) > 1:
        raise NystraError(
            f"{name} has {'more than ' if offset else ''}{len(pages)} pages, expected a single "
            f"image: write each page to a file of a folder, and run the folder: {_split(name)}"
        )
    if seen and not pages:
        raise NystraError(
            f"{name} holds a reduced copy of an image alone, as {FileKind.RAW} does: develop it "
            "first"
        )
    index, entries = pages[0] if pages else (0, {})
    compression = _first(entries, 259, 1)
    if compression not in _COMPRESSIONS:
        raise NystraError(
            f"{name} is compressed by method {compression} of TIFF, which is not supported: save "
            "it with deflate"
        )
    colors = _first(entries, 262)
    if colors not in _COLORS or (colors == _YCBCR and compression != _JPEG):
        what = f"colors of kind {colors} of TIFF"
        if colors in _RAW:
            what = f"{FileKind.RAW} (kind {colors})"
        raise NystraError(f"{name} holds {what}, expected gray or RGB: convert it first")
    area = _first(entries, 256) * _first(entries, 257)
    if compression not in _FAX_OR_JPEG and area > _PIXELS_A_BYTE * reader.length:
        raise NystraError(
            f"the image {name} is damaged: the file is too short for its {area} pixels"
        )
    if 322 in entries and not _has_all_tiles(entries, area):
        raise NystraError(f"the image {name} is damaged: its tiles are not those of its pixels")
    others = sorted(entries.keys() - _PRESERVED)
    notes = [f"its tags {', '.join(map(str, others[:8]))} were left out"] if others else []
    # libtiff only warns of damaged tiles, fax and JPEG, but of odd tags in good files too.
    warned = 322 in entries or compression in _FAX_OR_JPEG
    return index, "warning" if warned else "error", notes


def shares_bytes(block: bytes) -> bool:
    """Return whether entries of EXIF data share bytes: a small block could be written as a large.

    Raises:
        NystraError: It is damaged.
        struct.error: It is truncated.
    """
    reader = TagReader(io.BytesIO(block), "EXIF")
    waiting = [reader.first]
    seen: set[int] = set()
    spans: list[tuple[int, int]] = []
    while waiting:
        offset = waiting.pop()
        if offset in seen or len(seen) == _MAX_DIRECTORIES:
            return True
        seen.add(offset)
        entries, following = reader.directory(offset)
        spans += [(entry.place, entry.place + entry.size) for entry in entries.values()]
        waiting += [entries[tag].first for tag in _POINTERS if tag in entries]
        waiting += [following] if following else []
    spans.sort()
    return any(end > start for (_, end), (start, _) in itertools.pairwise(spans))


def _has_all_tiles(entries: dict[int, Entry], area: int) -> bool:
    """Return whether a TIFF has the tiles of its pixels; libvips leaves lacking ones black."""
    width, height = _first(entries, 322), _first(entries, 323)
    if 324 not in entries or not 0 < width * height <= max(_LARGE_TILE, area):
        return False
    tiles = -(-_first(entries, 256) // width) * -(-_first(entries, 257) // height)
    return entries[324].length in (tiles, tiles * _first(entries, 277, 1))


def _first(entries: dict[int, Entry], tag: int, default: int = 0) -> int:
    return entries[tag].first if tag in entries else default
