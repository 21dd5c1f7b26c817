"""Whether the strips or tiles of a TIFF page hold exactly its pixels.

A page says in several tags what its segments must hold: its size, that of a strip or tile, the
samples of a pixel and their bits. Decoders fill missing data and ignore surplus data; both are
reported as damage here, before a decoder allocates the pixels.
"""

from __future__ import annotations

import io
import os
from typing import Any, BinaryIO, NamedTuple

from ...core.errors import NystraError
from .inflating import inflated_length
from .jpeg_scan import without_end
from .lzw import decoded_length

NONE, LZW, JPEG, PACKBITS = 1, 5, 7, 32773
DEFLATE = (8, 32946)

_CHECKED = {NONE: "none", **dict.fromkeys(DEFLATE, "deflate"), LZW: "LZW", PACKBITS: "PackBits"}
_STRIP_OFFSETS, _STRIP_COUNTS, _TILE_OFFSETS, _TILE_COUNTS = 273, 279, 324, 325
_SUBSAMPLING, _JPEG_TABLES = 530, 347
_JPEG_END = b"\xff\xd9"
_YCBCR = 6
_SEPARATE = 2
_USUAL_TILE = 1 << 20
"""Pixels of a tile that a small image may have."""


class _Layout(NamedTuple):
    """How a page is cut.

    Attributes:
        across: Segments in a row of them.
        down: Rows of segments.
        planes: Number of planes of the page: one per channel, or one.
        width: Width of a segment in pixels.
        rows: Rows of a segment in pixels, the last one of strips excepted.
        last: Rows of the last one.
    """

    across: int
    down: int
    planes: int
    width: int
    rows: int
    last: int

    @property
    def segments(self) -> int:
        """How many segments there are."""
        return self.across * self.down * self.planes

    def rows_of(self, index: int) -> int:
        """Return the rows of a segment."""
        return self.last if index // self.across % self.down == self.down - 1 else self.rows


def check_segments(stream: BinaryIO, name: str, page: Any) -> None:
    """Find out whether the segments of a page hold its pixels and nothing else.

    Args:
        stream: The file.
        name: What to call it in the messages.
        page: A page of tifffile.

    Raises:
        NystraError: They do not, or are compressed in a way that cannot be checked.
    """
    compression = int(page.compression)
    if compression not in _CHECKED and compression != JPEG:
        kinds = ", ".join(dict.fromkeys((*_CHECKED.values(), "JPEG")))
        raise NystraError(
            f"{name} is compressed by {named(page.compression)}, which is not supported: save it "
            f"with deflate (supported: {kinds})"
        )
    layout = _layout(name, page)
    tiled = page.is_tiled
    offsets = _numbers(page, _TILE_OFFSETS if tiled else _STRIP_OFFSETS)
    counts = _numbers(page, _TILE_COUNTS if tiled else _STRIP_COUNTS)
    kind = "tiles" if tiled else "strips"
    if len(offsets) != layout.segments or len(counts) != layout.segments:
        raise _damaged(
            name,
            f"{page.imagewidth}x{page.imagelength} pixels are {layout.segments} {kind} of "
            f"{layout.width}x{layout.rows}, it has {min(len(offsets), len(counts))}",
        )
    if layout.width * layout.rows > max(4 * page.imagewidth * page.imagelength, _USUAL_TILE):
        raise _damaged(name, f"its {kind} have {layout.width}x{layout.rows} pixels")
    length = stream.seek(0, os.SEEK_END)
    for index, (offset, count) in enumerate(zip(offsets, counts, strict=True)):
        if offset + count > length:
            raise _damaged(name, f"its {kind} extend beyond the end of the file")
        rows = layout.rows_of(index)
        stream.seek(offset)
        _check_segment(stream, name, page, count, (layout.width, rows))


def named(value: Any) -> str:
    """Return the name of a number that tifffile has an enumeration of."""
    return str(getattr(value, "name", value))


def _check_segment(
    stream: BinaryIO, name: str, page: Any, count: int, size: tuple[int, int]
) -> None:
    compression = int(page.compression)
    if compression == JPEG:
        _check_jpeg(stream.read(count), name, page, size)
        return
    expected = _bytes(name, page, *size)
    if compression == NONE:
        held = count
    else:
        try:
            held = _held(compression, stream.read(count), expected)
        except Exception as error:  # of the counting: whatever the data makes it run into
            raise _damaged(name, str(error) or type(error).__name__) from error
    if held != expected:
        what = "decompresses to more" if held > expected else f"holds {held}"
        raise _damaged(name, f"a strip or tile of {expected} bytes {what}")


def _held(compression: int, data: bytes, expected: int) -> int:
    if compression in DEFLATE:
        return inflated_length([data], expected)
    return decoded_length(data, expected) if compression == LZW else _packbits_length(data)


def _layout(name: str, page: Any) -> _Layout:
    width, length = page.imagewidth, page.imagelength
    planes = page.samplesperpixel if page.planarconfig == _SEPARATE else 1
    if page.imagedepth != 1:
        raise NystraError(f"{name} has {page.imagedepth} layers, expected a single image")
    if page.is_tiled:
        across, down = page.tilewidth, page.tilelength
        if across < 1 or down < 1:  # one of the tags is left out
            raise _damaged(name, f"its tiles have {across}x{down} pixels")
        return _Layout(-(-width // across), -(-length // down), planes, across, down, down)
    rows = min(page.rowsperstrip or length, length)
    down = -(-length // rows)
    return _Layout(1, down, planes, width, rows, length - (down - 1) * rows)


def _bytes(name: str, page: Any, width: int, rows: int) -> int:
    """Return the bytes of a segment, decoded."""
    samples = 1 if page.planarconfig == _SEPARATE else page.samplesperpixel
    if int(page.photometric) == _YCBCR and samples == 3:
        across, down = _numbers(page, _SUBSAMPLING) or (2, 2)
        if across not in (1, 2, 4) or down not in (1, 2, 4):
            raise _damaged(name, f"its chroma is subsampled by {across}x{down}")
        samples_of_block = across * down + 2
        return -(-width // across) * -(-rows // down) * samples_of_block
    bits: int = width * samples * page.bitspersample
    return rows * -(-bits // 8)


def _numbers(page: Any, code: int) -> tuple[int, ...]:
    """Return the values of a tag as stored in the file; tifffile corrects its own fields."""
    tag = page.tags.get(code)
    if tag is None:
        return ()
    values = tag.value if isinstance(tag.value, tuple) else (tag.value,)
    return tuple(value for value in values if isinstance(value, int) and value >= 0)


def _check_jpeg(data: bytes, name: str, page: Any, size: tuple[int, int]) -> None:
    """Decode a segment as a JPEG file of its own: libtiff writes its errors to stderr only."""
    from PIL import JpegImagePlugin

    tables = page.tags.get(_JPEG_TABLES)
    if tables is not None:
        if not (isinstance(tables.value, bytes) and tables.value[-2:] == _JPEG_END):
            raise _damaged(name, "its JPEG tables are not bytes, or have no end marker")
        data = tables.value[:-2] + data[2:]
    with JpegImagePlugin.JpegImageFile(io.BytesIO(data)) as image:
        found, channels = image.size, len(image.getbands())
    if (found, channels) != (size, page.samplesperpixel):
        raise _damaged(name, f"a JPEG of {found} and {channels} channels, expected {size}")
    whole = without_end(io.BytesIO(data)) or data
    with JpegImagePlugin.JpegImageFile(io.BytesIO(whole)) as image:
        image.load()


def _packbits_length(data: bytes) -> int:
    total = position = 0
    while position < len(data):
        head = data[position]
        if head < 128:
            total += min(head + 1, len(data) - position - 1)
            position += head + 2
        else:
            total += 257 - head if head > 128 and position + 1 < len(data) else 0
            position += 2 if head > 128 else 1
    return total


def _damaged(name: str, what: str) -> NystraError:
    return NystraError(f"the image {name} is damaged or truncated: {what}")
