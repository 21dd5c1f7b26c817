"""Opens a TIFF at its only image, with what its tags say besides the pixels."""

from __future__ import annotations

import io
import os
import struct
import zlib
from typing import Any, BinaryIO

from ...core.errors import NystraError
from .exif import block_of, orientation_of, private_tags, read_tags, resolution_of
from .image_data import Extras, Metadata, in_resources
from .image_file import ImageFile, libvips, source
from .tiff_directories import Entry, TiffReader, only_directory

_NONE, _LZW, _DEFLATE, _PACKBITS = 1, 5, (8, 32946), 32773
COUNTED = (_NONE, _LZW, *_DEFLATE, _PACKBITS)
"""Compressions whose segments are looked at."""

_REPORTED = (2, 3, 4, 7)
"""Fax and JPEG, whose damage libtiff warns of."""
_NAMES = {6: "JPEG of TIFF 5", 34712: "JPEG 2000", 34925: "LZMA", 50000: "ZSTD", 50001: "WebP"}
_BITS = (1, 2, 4, 8, 16, 32)
_STEP = 1 << 20

_SEPARATE, YCBCR = 2, 6
_COLORS = (0, 1, 2, 3, 5, YCBCR)
_OTHER_COLORS = {4: "a mask", 32803: "a raw photo", 34892: "a raw photo"}
_OTHER_COLORS |= dict.fromkeys((8, 9, 10), "CIELAB")
_STRIPS, _TILES = (273, 279), (324, 325)


def check_kind(reader: TiffReader, entries: dict[int, Entry], name: str) -> int:
    """Return the compression of a TIFF.

    Raises:
        NystraError: Its compression, colors or number of bits are not supported.
    """
    compression = (reader.numbers(entries.get(259)) or (_NONE,))[0]
    if compression not in (*COUNTED, *_REPORTED):
        known = _NAMES.get(compression, f"method {compression}")
        raise NystraError(
            f"{name} is compressed by {known}, which is not supported: save it with deflate"
        )
    colors = (reader.numbers(entries.get(262)) or (0,))[0]
    if colors not in _COLORS:
        known = _OTHER_COLORS.get(colors, f"colors of kind {colors}")
        raise NystraError(f"{name} holds {known}, expected gray or RGB: convert it first")
    bits = (reader.numbers(entries.get(258)) or (1,))[0]
    if bits not in _BITS:
        raise NystraError(
            f"{name} holds numbers of {bits} bits, expected 8 or 16, or 32 in floating point: "
            "convert it first"
        )
    return compression


def check_segments(
    stream: BinaryIO, name: str, reader: TiffReader, entries: dict[int, Entry]
) -> None:
    """Find out whether the segments of a TIFF hold its pixels and nothing else.

    libtiff fills what is missing at the end of a file, ignores surplus data, which a changed size
    leaves, and does not compare the checksum of deflate. Data of LZW and PackBits is only decoded:
    it has no checksum, libtiff reports where it ends early, and surplus data of it is ignored.

    Args:
        stream: The file.
        name: What to call it in the messages.
        reader: Its directories.
        entries: The one of the image.

    Raises:
        NystraError: They do not.
    """

    def numbers(tag: int, default: int) -> tuple[int, ...]:
        return reader.numbers(entries.get(tag)) or (default,)

    compression, separate = numbers(259, 1)[0], numbers(284, 1)[0] == _SEPARATE
    if compression not in COUNTED:
        return
    samples = numbers(277, 1)[0]
    bits = numbers(258, 1)[0] * (1 if separate else samples)
    chroma = numbers(530, 2)[:2] if numbers(262, 0)[0] == YCBCR and samples == 3 else ()
    width, length = numbers(256, 0)[0], numbers(257, 0)[0]
    tiled = _TILES[0] in entries
    across, down = (numbers(tag, 0)[0] for tag in (322, 323))
    if not tiled:
        across, down = width, min(numbers(278, length)[0], length)
    offsets, counts = (numbers(tag, 0) for tag in (_TILES if tiled else _STRIPS))
    if across < 1 or down < 1:
        raise _damaged(name, f"its segments have {across}x{down} pixels")
    rows = -(-length // down)
    segments = -(-width // across) * rows * (samples if separate else 1)
    if not len(offsets) == len(counts) == segments:
        what = f"{width}x{length} pixels are {segments} strips or tiles, it has {len(offsets)}"
        raise _damaged(name, what)
    end = stream.seek(0, os.SEEK_END)
    for index, (offset, count) in enumerate(zip(offsets, counts, strict=True)):
        last = not tiled and index % rows == rows - 1
        height = length - (rows - 1) * down if last else down
        expected = height * -(-across * bits // 8)
        if chroma:
            expected = _subsampled(across, height, *chroma)
        if offset + count > end:
            raise _damaged(name, "its strips or tiles extend beyond the end of the file")
        held = count if compression == _NONE else expected
        if compression in _DEFLATE:
            stream.seek(offset)
            try:
                held = _inflated_length(stream.read(count), expected)
            except zlib.error as error:
                raise _damaged(name, str(error)) from error
        if held != expected:
            what = "decompresses to more" if held > expected else f"holds {held}"
            raise _damaged(name, f"a strip or tile of {expected} bytes {what}")


def _inflated_length(data: bytes, limit: int) -> int:
    """Return how many bytes deflate data holds; above ``limit`` the counting stops.

    Raises:
        zlib.error: It is not deflate data, its checksum is wrong, or it has no end.
    """
    inflater, total = zlib.decompressobj(), 0
    while not inflater.eof and total <= limit:
        part = inflater.decompress(data, _STEP)
        if not part and not inflater.eof:
            raise zlib.error("its deflate stream is truncated")
        total, data = total + len(part), inflater.unconsumed_tail
    return total


def _subsampled(width: int, rows: int, across: int, down: int) -> int:
    """Return the bytes of a segment whose color differences are stored once for several pixels."""
    return -(-width // across) * -(-rows // down) * (across * down + 2)


def _damaged(name: str, what: str) -> NystraError:
    return NystraError(f"the image {name} is damaged or truncated: {what}")


_EXTRA_SAMPLES, _PREMULTIPLIED, _PLAIN_ALPHA = 338, 1, 2
_XMP, _IPTC, _PHOTOSHOP = 700, 33723, 34377
_PHOTOMETRIC, _SUBSAMPLING = 262, 530
_RGB_OF_YCBCR = [[1.0, 0.0, 1.402], [1.0, -0.344136, -0.714136], [1.0, 1.772, 0.0]]


def open_tiff(stream: BinaryIO, name: str) -> ImageFile:
    """Open a TIFF; reduced copies of its image are ignored.

    Raises:
        NystraError: The file is damaged, of a kind that is not supported, or has several images.
        Exception: Whatever pyvips raises.
    """
    reader = TiffReader(stream)
    index, entries = only_directory(reader, name)
    counted = check_kind(reader, entries, name) in COUNTED
    plain_ycbcr = (
        counted
        and reader.numbers(entries.get(_PHOTOMETRIC)) == (YCBCR,)
        and reader.numbers(entries.get(_SUBSAMPLING)) == (1, 1)
    )
    extra = entries.get(_EXTRA_SAMPLES)
    premultiplied = reader.numbers(extra) == (_PREMULTIPLIED,)
    if premultiplied and extra:  # libvips would round the quotients
        stream = io.BytesIO(_with_short(stream, extra.place, _PLAIN_ALPHA))
    # Of counted data nothing is missed: libtiff warns of odd tags in good files too, and has no
    # limit for a strip.
    image = libvips().Image.tiffload_source(
        source(stream),
        page=index,
        access="sequential",
        fail_on="error" if counted else "warning",
        unlimited=counted,
    )

    def load() -> Any:
        check_segments(stream, name, reader, entries)
        return _rgb(image) if plain_ycbcr else image

    extras = _extras(reader, entries, name)
    return ImageFile("TIFF", (image.height, image.width), extras, load, premultiplied)


def _rgb(image: Any) -> Any:
    """Return 8 bits of YCbCr (BT.601, full range), which libvips takes for RGB, as RGB."""
    centered = image.linear([1, 1, 1], [0, -128, -128])
    return centered.recomb(_RGB_OF_YCBCR).rint().cast("uchar").copy(interpretation="srgb")


def _with_short(stream: BinaryIO, place: int, number: int) -> bytes:
    stream.seek(0)
    data = bytearray(stream.read())
    data[place + (data[:2] == b"MM")] = number
    return bytes(data)


def _extras(reader: TiffReader, entries: dict[int, Entry], name: str) -> Extras:
    notes = []
    private = private_tags(entries)
    if private:
        listed = ", ".join(map(str, private[:5])) + (", ..." if len(private) > 5 else "")
        notes.append(f"its private tags {listed} were left out")
    kept = {tag: entry for tag, entry in entries.items() if tag not in private}
    orientation = orientation_of(reader, entries)
    try:
        tags, dpi = read_tags(reader, kept, name), resolution_of(reader, entries)
        xmp, iptc, resources = (
            reader.value(entries[tag]).data if tag in entries else None
            for tag in (_XMP, _IPTC, _PHOTOSHOP)
        )
    except (NystraError, struct.error, OverflowError):
        notes.append("its tags are damaged and were left out")
        return Extras(orientation=orientation, notes=tuple(notes))
    if iptc and not resources:
        resources = in_resources(iptc)
    block = block_of(tags, reader.order)
    return Extras(Metadata(block, xmp, resources), orientation, dpi, tuple(notes))
