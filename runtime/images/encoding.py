"""Writes images as the content of files, by libvips."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from . import jpeg_segments, png_chunks, webp_chunks
from .exif import RESOLUTION, resolution_tags, tags_of
from .image_data import ImageData, quantize
from .image_file import from_array
from .tiff_directories import BYTE, UNDEFINED, Value, add_tags

_EVERY_FILTER = 0xF8
_LARGE_TIFF = 4_000_000_000
_XMP, _PHOTOSHOP, _ICC = 700, 34377, 34675


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
    picture = from_array(values)
    save, options = _saver(kind, quality, values.nbytes)
    content: bytes = getattr(picture, f"{save}save_buffer")(keep="none", **options)
    if kind == "TIFF":
        stream = io.BytesIO(content)
        _add_tags(stream, image)
        return stream.getvalue()
    return _WITH_EXTRAS[kind](content, image)


def _saver(kind: str, quality: int | None, size: int) -> tuple[str, dict[str, Any]]:
    """Return the name of the saver of a format, and its options for pixels of ``size`` bytes."""
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


_WITH_EXTRAS = {
    "PNG": png_chunks.with_extras,
    "JPEG": jpeg_segments.with_extras,
    "WebP": webp_chunks.with_extras,
}


def _add_tags(stream: Any, image: ImageData) -> None:
    """Add resolution and metadata of an image to its TIFF."""
    metadata = image.metadata
    tags: dict[int, Any] = tags_of(metadata.exif) if metadata.exif else {}
    for tag, kind, data in (
        (_XMP, BYTE, metadata.xmp),
        (_PHOTOSHOP, BYTE, metadata.iptc),
        (_ICC, UNDEFINED, image.icc),
    ):
        if data:
            tags[tag] = Value(kind, len(data), data)
    if image.dpi:
        tags |= resolution_tags(image.dpi)
    add_tags(stream, tags, RESOLUTION)
