"""EXIF data: read from a block or from the tags of a TIFF, and written as either.

The structure is that of Exif 2.32 (section 4.6): a TIFF without pixels, whose tags 34665, 34853
and 40965 point to directories of their own. What describes the stored pixels is left out:
orientation, sizes, thumbnails; the resolution is kept separately.
"""

from __future__ import annotations

import io
import struct
from fractions import Fraction

from ...core.errors import NystraError
from .image_data import plausible_dpi
from .tiff_directories import (
    RATIONAL,
    SHORT,
    Entry,
    Tags,
    TiffReader,
    Value,
    directory_bytes,
)

ORIENTATION = 274
RESOLUTION = frozenset((282, 283, 296))
_POINTERS = (34665, 34853, 40965)
_STRUCTURE = frozenset(
    tag
    for first, last in (
        *((254, 259), (262, 266), (273, 273), (277, 281), (284, 284), (288, 293), (317, 317)),
        *((320, 332), (338, 341), (347, 347), (512, 532)),
    )
    for tag in range(first, last + 1)
)
"""Tags of a TIFF that say how its pixels are stored."""
_ELSEWHERE = frozenset((700, 33723, 34377, 34675))
"""XMP, IPTC, Photoshop's resources and the profile, which have places of their own."""
_STALE = frozenset((ORIENTATION, 40962, 40963)) | _STRUCTURE | RESOLUTION | _ELSEWHERE
_PRIVATE = 32768
_REGISTERED = frozenset((33432, 18246, 18249, *range(40091, 40096), *_POINTERS))
"""Tags from 32768 on that belong to EXIF: copyright, rating, titles, the pointers."""
_MAX_BYTES = 16 << 20


def read_tags(
    reader: TiffReader, entries: dict[int, Entry], name: str, depth: int = 0
) -> dict[int, Value | Tags]:
    """Return the EXIF tags of a directory, and of those that it points to.

    Raises:
        NystraError: A directory is damaged.
        struct.error: The same.
    """
    found: dict[int, Value | Tags] = {}
    for tag, entry in entries.items():
        if tag in _STALE or entry.number * 8 > _MAX_BYTES:
            continue
        if tag not in _POINTERS:
            found[tag] = reader.value(entry)
        elif depth < 2 and (offset := sum(reader.numbers(entry))):
            inner, _ = reader.directory(offset, name)
            if kept := read_tags(reader, inner, name, depth + 1):
                found[tag] = kept
    return found


def private_tags(entries: dict[int, Entry]) -> list[int]:
    """Return the tags of a TIFF that no standard says the meaning of for other pixels."""
    return sorted(tag for tag in entries if tag >= _PRIVATE and tag not in _REGISTERED | _STALE)


def block_of(tags: Tags, order: str = "<") -> bytes | None:
    """Return EXIF data as a block, or None if there is nothing in it.

    Notes of the maker and comments have the order of bytes of their file, which is kept.
    """
    if not tags:
        return None
    mark = b"II" if order == "<" else b"MM"
    return mark + struct.pack(f"{order}HI", 42, 8) + directory_bytes(tags, 8, order=order)


def tags_of(block: bytes) -> dict[int, Value | Tags]:
    """Return the tags of a block that `block_of` made."""
    return _read_all(TiffReader(io.BytesIO(block)))


def _read_all(reader: TiffReader) -> dict[int, Value | Tags]:
    return read_tags(reader, reader.directory(reader.first, "EXIF")[0], "EXIF")


def with_resolution(block: bytes | None, dpi: tuple[float, float] | None) -> bytes | None:
    """Return a block with a resolution in pixels per inch added."""
    if dpi is None:
        return block
    if block is None:
        return block_of(resolution_tags(dpi))
    reader = TiffReader(io.BytesIO(block))
    return block_of({**_read_all(reader), **resolution_tags(dpi)}, reader.order)


def resolution_tags(dpi: tuple[float, float]) -> dict[int, Value]:
    """Return the tags of a resolution in pixels per inch."""
    exact = (Fraction(value).limit_denominator(4096) for value in dpi)
    across, down = (struct.pack("<II", value.numerator, value.denominator) for value in exact)
    return {
        282: Value(RATIONAL, 1, across),
        283: Value(RATIONAL, 1, down),
        296: Value(SHORT, 1, struct.pack("<H", 2)),
    }


def read_block(
    data: bytes | None,
) -> tuple[bytes | None, int, tuple[float, float] | None, list[str]]:
    """Return EXIF data as `block_of` makes it, orientation, resolution, and notes.

    Args:
        data: The block of a file, or None.
    """
    if not data:
        return None, 1, None, []
    try:
        reader = TiffReader(io.BytesIO(data.removeprefix(b"Exif\0\0")))
        entries, _ = reader.directory(reader.first, "EXIF")
        orientation, dpi = orientation_of(reader, entries), resolution_of(reader, entries)
        block = block_of(read_tags(reader, entries, "EXIF"), reader.order)
    except (NystraError, struct.error, OverflowError):
        return None, 1, None, ["its EXIF data is damaged and was left out"]
    return block, orientation, dpi, []


def orientation_of(reader: TiffReader, entries: dict[int, Entry]) -> int:
    """Return the orientation, 1 to 8; 1 where there is none that makes sense."""
    found = reader.numbers(entries.get(ORIENTATION))
    return found[0] if len(found) == 1 and 1 <= found[0] <= 8 else 1


def resolution_of(reader: TiffReader, entries: dict[int, Entry]) -> tuple[float, float] | None:
    """Return the resolution in pixels per inch, or None."""
    unit = reader.numbers(entries.get(296)) or (2,)
    scale = {2: 1.0, 3: 2.54}.get(unit[0])
    found = []
    for tag in (282, 283):
        entry = entries.get(tag)
        if scale is None or entry is None or entry.kind != RATIONAL or entry.number != 1:
            return None
        above, below = struct.unpack("<II", reader.value(entry).data)
        found.append(above / below * scale if below else 0.0)
    return plausible_dpi(found[0], found[1])
