"""Writes images as the content of files, by libvips."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import NystraError
from .image_data import ImageData, quantize
from .image_file import from_array, libvips
from .metadata import describe_to_pyvips

_EVERY_FILTER = 0xF8
_LARGE_TIFF = 4_000_000_000
_PLAIN_HEADER = 512
_SHORT, _LONG8 = 3, 16
"""Types of values in a TIFF."""


def encode(image: ImageData, kind: str, quality: int | None) -> bytes:
    """Return an image as the content of a file; see `images.encode_image`.

    Args:
        image: With nothing that the format cannot hold.
        kind: ``PNG``, ``JPEG``, ``TIFF`` or ``WebP``.
        quality: As in `images.encode_image`.

    Raises:
        Exception: Whatever pyvips raises.
    """
    channels = image.pixels
    if image.alpha is not None:
        channels = np.concatenate([channels, image.alpha[:, :, None]], axis=2)
    values = quantize(channels, image.bits)
    picture, keep = describe_to_pyvips(from_array(values), image, kind)
    save, options = _saver(kind, quality, values.nbytes)
    content: bytes = getattr(picture, f"{save}save_buffer")(keep=keep, **options)
    return content


def make_header(size: tuple[int, int], bands: int, bits: int) -> bytes:
    """Return what stands before rows of pixels in a BigTIFF without compression.

    libvips reads such a file a few rows at a time; a file without a header it maps into memory.
    """
    height, width = size
    length = height * width * bands * bits // 8
    numbers = {256: width, 257: height, 258: 0, 259: 1, 262: 2 if bands == 3 else 1}
    numbers |= {273: _PLAIN_HEADER, 277: bands, 278: height, 279: length, 284: 1}
    header = b"II+\0" + struct.pack("<HHQQ", 8, 0, 16, len(numbers))
    for tag, number in numbers.items():
        if tag == 258:
            header += struct.pack("<HHQ4H", tag, _SHORT, bands, *[bits] * bands, *[0] * (4 - bands))
        else:
            header += struct.pack("<HHQQ", tag, _LONG8, 1, number)
    return header.ljust(_PLAIN_HEADER, b"\0")


def save_file(raw: Path, path: Path, image: ImageData, kind: str, quality: int | None) -> None:
    """Write an image file from a file of its pixels.

    Args:
        raw: A TIFF that begins with `uncompressed_header`.
        path: The image file.
        image: As in `strips.write_strips`.
        kind: ``PNG``, ``JPEG`` or ``TIFF``.
        quality: As in `images.encode_image`.

    Raises:
        NystraError: It cannot be written.
    """
    vips = libvips()
    try:
        with raw.open("rb", buffering=0) as stream:
            picture = vips.Image.tiffload_source(
                vips.Source.new_from_descriptor(stream.fileno()),
                access="sequential",
                unlimited=True,
            )
        picture, keep = describe_to_pyvips(picture, image, kind)
        save, options = _saver(kind, quality, raw.stat().st_size)
        getattr(picture, f"{save}save")(os.fsencode(path), keep=keep, **options)
    except vips.Error as error:
        reason = " ".join(str(error).split())[:300]
        raise NystraError(f"{path} cannot be written: {reason}") from error


def _saver(kind: str, quality: int | None, size: int) -> tuple[str, dict[str, Any]]:
    if kind == "PNG":
        return "png", {"compression": 3, "filter": _EVERY_FILTER}
    if kind == "JPEG":
        return "jpeg", {"Q": 95 if quality is None else quality, "subsample_mode": "off"}
    if kind == "WebP":
        exact = {"exact": True, "lossless": quality is None}
        return "webp", exact if quality is None else {**exact, "Q": quality}
    return "tiff", {
        "compression": "deflate",
        "predictor": "horizontal",
        "bigtiff": size > _LARGE_TIFF,
    }
