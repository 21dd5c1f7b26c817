"""What a file says of its image besides the pixels, as libvips reads and writes it."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from typing import Any

from ...core.errors import NystraError
from .image_data import MAX_METADATA, ImageData, Metadata
from .image_file import field, libvips

PROFILE = "icc-profile-data"
_EXIF, _XMP, _TEXT = "exif-data", "xmp-data", "png-comment-"
_OF_ONE_FORMAT = {
    "iptc-data": "IPTC",
    "photoshop-data": "data of Photoshop",
    "image-description": "description",
}
"""Fields that only a file of the same format holds in the same way, and what they are."""
_PRESERVED = {
    "PNG": (_EXIF, _XMP),
    "JPEG": (_EXIF, _XMP, "iptc-data"),
    "TIFF": (_XMP, *_OF_ONE_FORMAT),
    "WebP": (_EXIF, _XMP),
}
"""Format -> the fields that libvips writes."""
_LARGEST_IN_JPEG = 64_000
_MILLIMETERS = 25.4
_USUAL_DPI = (72, 72)
_ORIENTATION = re.compile(rb"(tiff:Orientation(?:=[\"']|>))[1-8]")
_MAX_BITS = {"JPEG": 8, "WebP": 8, "PNG": 16}
_NUMBERS = {16: "16 bits", 32: "floating point"}


def read_metadata(image: Any, format: str) -> tuple[Metadata, bytes | None, list[str]]:
    """Return what libvips says of an image, its color profile, and notes on what was left out.

    All of it together takes `MAX_METADATA` bytes; EXIF data whose entries share bytes, from which
    a much larger block would be written, is left out.

    Args:
        image: An image of pyvips, not yet decoded.
        format: The format of its file.
    """
    names = [PROFILE, _EXIF, _XMP, *_OF_ONE_FORMAT]
    names += [name for name in image.get_fields() if name.startswith(_TEXT)]
    fields: dict[str, bytes | str] = {}
    notes: list[str] = []
    room = MAX_METADATA
    for name in names:
        try:
            value = field(image, name)
        except UnicodeDecodeError:
            notes.append(f"{_label(name)} is not UTF-8 and was left out")
            continue
        if not value:
            continue
        if len(value) > room:
            notes.append(f"its metadata beyond 1 MiB was left out: {_label(name)}")
        elif name == _EXIF and _is_damaged(value):
            notes.append("its EXIF data is damaged, or its entries share bytes, and was left out")
        else:
            fields[name] = value
            room -= len(value)
    profile = fields.pop(PROFILE, None)
    return Metadata(format, fields), profile if isinstance(profile, bytes) else None, notes


def read_dpi(image: Any) -> tuple[float, float] | None:
    """Return the resolution of an image in pixels per inch, or None if no file could hold it."""
    across, down = (round(each * _MILLIMETERS, 3) for each in (image.xres, image.yres))
    if image.xres == image.yres == 1.0:  # unknown
        return None
    return (across, down) if 0 < across < 1e6 and 0 < down < 1e6 else None


def describe_to_pyvips(picture: Any, image: ImageData, kind: str) -> tuple[Any, str]:
    """Return an image of pyvips with all that is known of an image, and what a saver is to keep.

    Args:
        picture: The pixels.
        image: What is known of them: nothing that the format cannot hold.
        kind: The format.
    """
    vips = libvips()
    across, down = image.dpi or _USUAL_DPI
    picture = picture.copy(xres=across / _MILLIMETERS, yres=down / _MILLIMETERS)
    fields = dict(image.metadata.fields)
    if image.icc:
        fields[PROFILE] = image.icc
    for name, value in fields.items():
        if isinstance(value, str):
            picture.set_type(vips.GValue.gstr_type, name, value)
            continue
        data = _ORIENTATION.sub(rb"\g<1>1", value) if name == _XMP else value
        picture.set_type(vips.GValue.blob_type, name, data)
    picture.set_type(vips.GValue.gint_type, "orientation", 1)
    # libvips writes the resolution of these formats into EXIF data, which it makes of nothing.
    resolved = kind in ("JPEG", "WebP") and (round(across), round(down)) != _USUAL_DPI
    return picture, "all" if resolved or _EXIF in fields else "other:xmp:iptc:icc"


def fit_to_format(image: ImageData, kind: str) -> tuple[ImageData, list[str]]:
    """Return an image with only the bits and metadata that a format can hold, and notes.

    Args:
        image: The image.
        kind: ``PNG``, ``JPEG``, ``TIFF`` or ``WebP``.
    """
    metadata, lost = image.metadata, list[str]()
    if image.icc and (image.icc[16:20] == b"GRAY") != (image.gray and kind != "WebP"):
        lost.append("the color profile, which is for other pixels,")
        image = replace(image, icc=None)
    fields = {
        name: value
        for name, value in metadata.fields.items()
        if _is_kept(name, value, metadata.format, kind)
    }
    lost += [_label(name) for name in metadata.fields if name not in fields]
    notes = [f"{', '.join(lost)} cannot be kept in a {kind} file"] if lost else []
    bits = min(image.bits, _MAX_BITS.get(kind, 32))
    if bits < image.bits:
        notes.append(f"its {_NUMBERS[image.bits]} a channel became {bits} bits, as {kind} has")
    return replace(image, bits=bits, metadata=replace(metadata, fields=fields)), notes


def _is_kept(name: str, value: bytes | str, source: str, kind: str) -> bool:
    if name.startswith(_TEXT):
        return kind == "PNG" and isinstance(value, str) and value.isascii()  # others are garbled
    if name in _OF_ONE_FORMAT and source != kind:
        return False
    return name in _PRESERVED[kind] and (kind != "JPEG" or len(value) <= _LARGEST_IN_JPEG)


def _label(name: str) -> str:
    if name.startswith(_TEXT):
        return f"the text {name.removeprefix(_TEXT).partition('-')[2]!a}"
    labels = {PROFILE: "color profile", _EXIF: "EXIF", _XMP: "XMP", **_OF_ONE_FORMAT}
    return labels[name]


def _is_damaged(block: bytes | str) -> bool:
    from .tags import shares_bytes  # few pictures have EXIF

    try:
        return isinstance(block, str) or shares_bytes(block.removeprefix(b"Exif\0\0"))
    except (NystraError, struct.error, OverflowError):
        return True
