"""Images from and to files and bytes: PNG, JPEG, TIFF and WebP, 8 and 16 bits, gray and color.

BMP, GIF and AVIF are read only; of an animated image the first frame. TIFF may also hold floating
point.

Alpha, ICC profile, resolution, EXIF, XMP, IPTC and texts of an image are kept as libvips keeps
them, or a note says that they are not. An EXIF orientation is applied to the pixels and then
removed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ...core.errors import NystraError
from ...core.files.reading import open_regular
from ...core.files.writing import atomic_write_bytes, check_new_file
from ..options import QUALITY
from .image_data import ImageData

if TYPE_CHECKING:
    from .image_file import ImageFile

STREAM = Path("-")
"""The name of the standard input or output."""

SUFFIXES = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".jpe": "JPEG",
    ".jfif": "JPEG",
    ".jif": "JPEG",
    ".pjpeg": "JPEG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WebP",
}
"""File suffixes that are read and written."""

READ_SUFFIXES = (*SUFFIXES, ".apng", ".bmp", ".dib", ".gif", ".avif")
"""File suffixes that are read."""

MAX_PIXELS = 500_000_000
"""Largest image that is read, in pixels; the environment variable NYSTRA_MAX_PIXELS overrides
it."""

DECODING_BYTES = 40
"""Most bytes per pixel while an image is decoded, in addition to its file: 36 for a rotated WebP
with alpha, 19 to 28 for other formats, and the overhead of allocators."""

_SIDE_LIMITS = {"JPEG": 65_535, "WebP": 16_383}


def image_format(path: str | os.PathLike[str]) -> str:
    """Return the format of a file name: ``PNG``, ``JPEG``, ``TIFF`` or ``WebP``.

    Raises:
        NystraError: The suffix is none of `SUFFIXES`.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise NystraError(
            f"{path} has the suffix {suffix or '(none)'!r}, expected one of {', '.join(SUFFIXES)}"
        )
    return SUFFIXES[suffix]


def format_named(name: str) -> str:
    """Return the format of a name such as ``png``, ``jpg`` or ``tiff``.

    Raises:
        NystraError: It is none of `SUFFIXES` without the dot.
    """
    kind = SUFFIXES.get(f".{name.lower()}")
    if kind is None:
        names = ", ".join(suffix[1:] for suffix in SUFFIXES)
        raise NystraError(f"`format` is {name!r}, expected one of {names}")
    return kind


def read_image(path: str | os.PathLike[str]) -> ImageData:
    """Read an image; the format is detected from the content, not from the name.

    Palettes, CMYK and other color spaces become RGB; bilevel becomes gray. Of an animated image
    the first frame is read, with a note; a TIFF with several pages is an error.

    Raises:
        NystraError: The file is missing, not a regular file, empty, not an image, damaged,
            truncated, without pixels, in an unsupported format, or larger than `MAX_PIXELS`.
    """
    with open_regular(path, "the image") as stream:
        return decode_image(stream, str(path))


def read_image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return height and width of an image as `read_image` would return it.

    Raises:
        NystraError: As `read_image`; damage after the header is not detected.
    """
    with open_regular(path, "the image") as stream, open_image(stream, str(path)) as file:
        return file.upright_size


def decode_image(
    data: bytes | BinaryIO, name: str = "the image", *, max_pixels: int | None = None
) -> ImageData:
    """Read an image from bytes or a file object; see `read_image`.

    Args:
        data: The content of an image file, or a file opened for reading that can seek.
        name: What to call it in the messages.
        max_pixels: The most pixels that it may have, if fewer than `MAX_PIXELS`.

    Raises:
        NystraError: As `read_image`.
    """
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    limit = _max_pixels() if max_pixels is None else min(max_pixels, _max_pixels())
    with open_image(stream, name) as file:
        check_size(name, file.size, limit)
        image = file.decode(name)
        if image.size != file.upright_size:
            raise NystraError(
                f"the image {name} is damaged: its header says {file.upright_size}, its pixels "
                f"are {image.size}"
            )
        return image


@contextmanager
def open_image(stream: BinaryIO, name: str) -> Iterator[ImageFile]:
    """Open an image that is not empty; see `image_file.open_image`."""
    from .opening import open_image

    if not stream.read(1):
        raise NystraError(f"{name} is empty, expected an image")
    stream.seek(0)
    with open_image(stream, name) as file:
        yield file


def image_head(data: bytes, name: str = "the image") -> tuple[tuple[int, int], str]:
    """Return height and width of an image as stored in its file, and its format.

    Nothing is decoded. An EXIF orientation, which may exchange the two, is not applied.

    Args:
        data: The content of an image file.
        name: What to call it in the messages.

    Raises:
        NystraError: As `read_image`; damage after the header is not detected.
    """
    with open_image(io.BytesIO(data), name) as file:
        return file.size, file.format


def metadata_bytes(data: bytes, name: str = "the image") -> int:
    """Return the bytes of what is kept of an image besides its pixels; see `image_head`."""
    with open_image(io.BytesIO(data), name) as file:
        return len(file.icc or b"") + sum(map(len, file.metadata.fields.values()))


def write_image(
    path: str | os.PathLike[str],
    image: ImageData,
    *,
    overwrite: bool = False,
    quality: int | None = None,
) -> list[str]:
    """Write an image in the format of the file's suffix, atomically.

    Args:
        path: The file.
        image: What to write.
        overwrite: Replace an existing file.
        quality: As in `encode_image`.

    Returns:
        What the format cannot hold and was left out, in sentences.

    Raises:
        NystraError: The file exists and ``overwrite`` is not set, the folder cannot be written,
            or the format cannot hold the image.
    """
    kind = check_writable(path, overwrite=overwrite)
    data = encode_image(image, kind, quality=quality, name=f"the image for {path}")
    atomic_write_bytes(path, data)
    return describe_left_out(image, kind)


def describe_left_out(image: ImageData, kind: str) -> list[str]:
    """Return what a format cannot hold of an image besides its pixels, in sentences."""
    from .metadata import fit_to_format

    return fit_to_format(image, kind)[1]


def encode_image(
    image: ImageData, kind: str, *, quality: int | None = None, name: str = "the image"
) -> bytes:
    """Return an image as the content of a file.

    PNG and TIFF are written with deflate; 16 bits become 8 in JPEG and WebP, floating point
    becomes 16 bits in PNG. Values outside 0..1 are clipped. Metadata that the format cannot hold
    is left out; see `describe_left_out`.

    Args:
        image: What to write.
        kind: ``PNG``, ``JPEG``, ``TIFF`` or ``WebP``.
        quality: 1 to 100 for JPEG (None is 95; chroma is never subsampled) and WebP (None is
            lossless); ignored for other formats.
        name: What to call it in the messages.

    Raises:
        NystraError: The format cannot hold the image (alpha in JPEG, sides beyond its limit,
            NaN), or the quality is out of range.
    """
    from .encoding import encode

    QUALITY.accept("quality", quality)
    opaque = image.alpha is None or bool(np.all(image.alpha >= 1.0))
    if kind == "JPEG":
        if not opaque:
            raise NystraError(f"JPEG has no alpha channel, and {name} has one: write PNG")
        image = replace(image, alpha=None)
    if not bool(np.isfinite(image.pixels).all()):
        raise NystraError(f"{name} has NaN or infinity: the model's output is invalid")
    image, _ = without_unfit(image, image.size, kind, name)
    try:
        return encode(image, kind, quality)
    except (NystraError, ImportError):
        raise
    except MemoryError as error:
        raise NystraError(f"not enough memory to write {name} as {kind}") from error
    except Exception as error:  # whatever odd metadata makes the encoder run into
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise NystraError(f"{name} cannot be written as {kind}: {reason}") from error


def without_unfit(
    image: ImageData, size: tuple[int, int], kind: str, name: str
) -> tuple[ImageData, list[str]]:
    """Return an image with the metadata and the bits that a format can hold, and notes.

    Raises:
        NystraError: The format cannot hold its size (height, width).
    """
    from .metadata import fit_to_format

    height, width = size
    limit = _SIDE_LIMITS.get(kind)
    if limit is not None and max(height, width) > limit:
        raise NystraError(
            f"{kind} has at most {limit} pixels per side, {name} is {width}x{height}: write PNG"
        )
    return fit_to_format(image, kind)


def check_writable(
    path: str | os.PathLike[str], source: Path | None = None, *, overwrite: bool
) -> str:
    """Return the format of an output file after checking that it may be written.

    Raises:
        NystraError: An unknown suffix, or as of `check_new_file`.
    """
    kind = image_format(path)
    check_new_file(Path(path), "an image", source, overwrite=overwrite)
    return kind


def check_size(name: str, size: tuple[int, int], limit: int | None = None) -> None:
    """Raise NystraError for an image without pixels, or more than ``limit`` or `MAX_PIXELS`."""
    height, width = size
    max_pixels = _max_pixels() if limit is None else limit
    if width < 1 or height < 1:
        raise NystraError(f"the image {name} is {width}x{height}: it has no pixels")
    if width * height > max_pixels:
        raise NystraError(
            f"the image {name} declares {width}x{height}, more than {max_pixels} pixels: cut "
            "it into parts, or raise NYSTRA_MAX_PIXELS if the size is right; see docs/running.md"
        )


def _max_pixels() -> int:
    text = os.environ.get("NYSTRA_MAX_PIXELS")
    if text is None:
        return MAX_PIXELS
    if not text.isdecimal() or int(text) < 1:
        raise NystraError(f"NYSTRA_MAX_PIXELS is {text!r}, expected a number of pixels")
    return int(text)


@dataclass(frozen=True)
class Naming:
    """The names of outputs.

    Attributes:
        format: Suffix of their format without the dot, such as ``png``; None keeps that of the
            input, or uses ``png`` if that can only be read.
        suffix: Appended to the stem of an image in a folder, such as ``_x2``.
    """

    format: str | None = None
    suffix: str = ""

    def __post_init__(self) -> None:
        if self.format is not None:
            format_named(self.format)
        if "/" in self.suffix or os.sep in self.suffix or "\0" in self.suffix:
            raise NystraError(f"`suffix` is {self.suffix!r}, expected a part of a file name")

    def name(self, source: Path) -> str:
        """Return the name of an image's output in a folder."""
        stem = "stdin" if source == STREAM else source.stem
        ending = source.suffix if source.suffix.lower() in SUFFIXES else ".png"
        if self.format:
            ending = f".{self.format}"
        return f"{stem}{self.suffix}{ending}"
