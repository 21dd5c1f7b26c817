"""Opens a TIFF at its only image, with what its tags say besides the pixels."""

from __future__ import annotations

import io
import struct
from typing import Any, BinaryIO

from ...core.errors import NystraError
from .exif import block_of, orientation_of, private_tags, read_tags, resolution_of
from .extras import Extras, in_resources
from .image_data import Metadata
from .image_file import ImageFile, source
from .libvips import libvips
from .tiff_directories import Entry, TiffReader, only_directory
from .tiff_segments import COUNTED, YCBCR, check_kind, check_segments

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
    """Return the content of a TIFF with another number below 256 at a place."""
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
