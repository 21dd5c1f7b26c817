"""Pictures from and to files: PNG, JPEG, TIFF and WebP, 8 and 16 bits, grey and colour.

What a picture carries stays with it: alpha, ICC profile, resolution and EXIF data. An EXIF
orientation is applied to the pixels and then taken out of the data.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...plugins.errors import NystraError
from ..files.writing import atomic_path
from .picture import Picture

SUFFIXES = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WebP",
}
"""File suffixes that are read and written."""

MAX_PIXELS = 500_000_000
"""Largest picture that is read, in pixels; the environment's NYSTRA_MAX_PIXELS replaces it."""

_SIDE_LIMITS = {"JPEG": 65_535, "WebP": 16_383}
_EIGHT_BIT_ONLY = ("JPEG", "WebP")


def picture_format(path: str | os.PathLike[str]) -> str:
    """Return the format a file name stands for: ``PNG``, ``JPEG``, ``TIFF`` or ``WebP``.

    Raises:
        NystraError: The suffix is none of `SUFFIXES`.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise NystraError(
            f"{path} has the suffix {suffix or '(none)'!r}, expected one of {', '.join(SUFFIXES)}"
        )
    return SUFFIXES[suffix]


def read_picture(path: str | os.PathLike[str]) -> Picture:
    """Read a picture; what it is, is told from its content and not its name.

    Palettes, CMYK and other colour spaces become RGB; bilevel becomes grey. Of a multi-page or
    animated file the only picture is taken; several are an error.

    Raises:
        NystraError: The file is missing, empty, not a picture, damaged, cut short, without
            pixels, of a kind that is not read, or larger than `MAX_PIXELS`.
    """
    from . import codecs

    file = Path(path)
    if file.is_dir():
        raise NystraError(f"{file} is a folder, expected a picture")
    try:
        head = file.open("rb")
    except OSError as error:
        raise NystraError(f"cannot read the picture {file}: {error.strerror}") from error
    with head, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the codecs, about odd metadata
        if not head.peek(1):
            raise NystraError(f"{file} is empty, expected a picture")
        return codecs.decode(file, _max_pixels())


def write_picture(
    path: str | os.PathLike[str], picture: Picture, *, overwrite: bool = False
) -> None:
    """Write a picture in the format of the file's suffix, atomically.

    JPEG is written at quality 95 without chroma subsampling, WebP lossless, PNG and TIFF with
    deflate; 16 bits become 8 in JPEG and WebP. Values outside 0..1 are clipped.

    Args:
        path: The file.
        picture: What to write.
        overwrite: Replace a file that is there.

    Raises:
        NystraError: The file exists and ``overwrite`` is not set, the folder cannot be written,
            or the format cannot hold the picture (alpha in JPEG, sides beyond its limit, NaN).
    """
    from . import codecs

    kind = check_writable(path, overwrite=overwrite)
    height, width = picture.size
    limit = _SIDE_LIMITS.get(kind)
    if limit is not None and max(height, width) > limit:
        raise NystraError(
            f"{kind} holds at most {limit} pixels a side, {path} has {width}x{height}: write PNG"
        )
    opaque = picture.alpha is None or bool(np.all(picture.alpha >= 1.0))
    if kind == "JPEG":
        if not opaque:
            raise NystraError(f"JPEG holds no alpha, and the picture for {path} has it: write PNG")
        picture = replace(picture, alpha=None)
    if not bool(np.isfinite(picture.pixels).all()):
        raise NystraError(
            f"the picture for {path} holds NaN or infinity: the model's output is bad"
        )
    if kind in _EIGHT_BIT_ONLY:
        picture = replace(picture, bits=8)
    with atomic_path(path) as temporary:
        codecs.encode(temporary, kind, picture)


def check_writable(path: str | os.PathLike[str], *, overwrite: bool) -> str:
    """Return the format of an output file after checking that it may be written.

    Raises:
        NystraError: An unknown suffix, a folder of that name, or a file that may not be replaced.
    """
    kind = picture_format(path)
    target = Path(path)
    if target.is_dir():
        raise NystraError(f"{target} is a folder, expected the name of a picture")
    if target.exists() and not overwrite:
        raise NystraError(f"{target} exists: choose another output or add --overwrite")
    return kind


def _max_pixels() -> int:
    text = os.environ.get("NYSTRA_MAX_PIXELS")
    if text is None:
        return MAX_PIXELS
    if not text.isdecimal() or int(text) < 1:
        raise NystraError(f"NYSTRA_MAX_PIXELS is {text!r}, expected a number of pixels")
    return int(text)
