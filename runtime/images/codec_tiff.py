"""TIFF: 16-bit colour by tifffile, the rest by Pillow; written by tifffile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...core.errors import NystraError
from .inflating import inflates_within
from .picture import Picture, plausible_dpi
from .tiff_directories import only_directory

_MINISWHITE, _MINISBLACK, _RGB = 0, 1, 2
_NONE, _LZW, _PACKBITS = 1, 5, 32773
_DEFLATE = (8, 32946)
_ORIENTATION, _ICC = 274, 34675
_UNDEFINED = 7  # the TIFF data type of plain bytes


@contextmanager
def single_page(stream: BinaryIO, name: str) -> Iterator[Any]:
    """Open a TIFF and yield its only page; reduced copies of it do not count.

    Raises:
        NystraError: The file is damaged, or holds several pictures.
    """
    import tifffile

    index = only_directory(stream, name)
    with tifffile.TiffFile(stream) as file:
        yield file.pages[index].aspage()


def is_deep(name: str, page: Any) -> bool:
    """Return whether a page has 16 bits a channel; fewer are read by Pillow.

    Raises:
        NystraError: It has more than 16 bits, or several layers.
    """
    if page.dtype is None or page.dtype == np.uint8 or page.bitspersample == 1:
        return False
    if page.dtype != np.uint16 or page.bitspersample != 16 or page.imagedepth != 1:
        raise NystraError(
            f"{name} holds {page.dtype} of {page.bitspersample} bits, expected 8 or 16 bits a "
            "channel: convert it first"
        )
    return True


def decode(stream: BinaryIO, name: str, page: Any, max_pixels: int) -> tuple[Picture, int]:
    """Return a 16-bit page and its orientation (tag 274), which is not applied.

    Raises:
        NystraError: It is compressed or coloured in a way that is not read, or holds more than it
            says.
    """
    _check_kind(name, page)
    _check_segments(stream, name, page, max_pixels)
    picture = _deep(name, page)
    tags = {tag.code: tag.value for tag in page.tags.values()}
    icc, orientation = tags.get(_ICC), tags.get(_ORIENTATION, 1)
    return (
        replace(picture, icc=icc if icc and isinstance(icc, bytes) else None, dpi=_dpi(tags)),
        orientation if isinstance(orientation, int) else 1,
    )


def _check_kind(name: str, page: Any) -> None:
    if int(page.photometric) not in (_MINISWHITE, _MINISBLACK, _RGB):
        raise NystraError(
            f"{name} has the colours {_named(page.photometric)}, expected grey or RGB"
        )
    if page.samplesperpixel > 4:
        raise NystraError(
            f"{name} has {page.samplesperpixel} channels, expected grey or RGB and alpha"
        )
    compression = int(page.compression)
    without_library = (_NONE, *_DEFLATE, _PACKBITS)
    if compression in without_library or (compression == _LZW and find_spec("imagecodecs")):
        return
    advice = "install imagecodecs, or " if compression == _LZW else ""
    raise NystraError(
        f"{name} is compressed by {_named(page.compression)}, which is not read in 16 bits: "
        f"{advice}save it with deflate"
    )


def _check_segments(stream: BinaryIO, name: str, page: Any, max_pixels: int) -> None:
    """Raise NystraError when the strips or tiles of a page hold more than their pixels."""
    expected = math.prod(page.chunks) * 2
    if expected > max_pixels * 8:
        raise NystraError(f"the picture {name} has tiles of {page.chunks}, more than its pixels")
    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=False):
        if count > 2 * expected + 65_536:
            raise NystraError(f"the picture {name} is damaged: {count} bytes for {expected}")
        if int(page.compression) in _DEFLATE:
            stream.seek(offset)
            if not inflates_within([stream.read(count)], expected + 1024):
                raise NystraError(
                    f"the picture {name} is damaged: a strip or tile of {expected} bytes inflates "
                    "to more"
                )


def _named(value: Any) -> str:
    return str(getattr(value, "name", value))


def _dpi(tags: dict[int, Any]) -> tuple[float, float] | None:
    """Return pixels per inch of the tags XResolution, YResolution and ResolutionUnit."""
    try:
        per_inch = {2: 1.0, 3: 2.54}[int(tags.get(296, 2))]
        across, down = (tags[code][0] / tags[code][1] * per_inch for code in (282, 283))
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError):
        return None
    return plausible_dpi(across, down)


def _deep(name: str, page: Any) -> Picture:
    """Return a 16-bit page."""
    values = page.asarray()
    kind = int(page.photometric)
    if page.axes == "SYX":
        values = np.moveaxis(values, 0, 2)
    elif page.axes == "YX":
        values = values[:, :, None]
    scaled = values.astype(np.float32) / np.float32(65535)
    colours = 3 if kind == _RGB else 1
    pixels = np.ascontiguousarray(scaled[:, :, :colours])
    if kind == _MINISWHITE:
        pixels = np.float32(1) - pixels
    if scaled.shape[2] == colours:
        return Picture(pixels, bits=16)
    extras = [int(item) for item in page.extrasamples]
    if scaled.shape[2] > colours + 1 or extras not in ([1], [2]):
        raise NystraError(f"{name} has {scaled.shape[2]} channels, expected grey or RGB and alpha")
    alpha = np.ascontiguousarray(scaled[:, :, -1])
    if extras == [1]:
        pixels = np.clip(pixels / np.maximum(alpha, 1 / 65535)[:, :, None], 0, 1)
    return Picture(pixels.astype(np.float32), alpha, 16)


def encode(stream: BinaryIO, values: npt.NDArray[Any], picture: Picture) -> None:
    """Write (H, W, 1 to 4) uint8 or uint16 values as TIFF."""
    import tifffile

    planes = values.shape[2]
    options: dict[str, Any] = {}
    if planes in (2, 4):
        options["extrasamples"] = ["unassalpha"]
    if picture.dpi:
        options["resolution"] = picture.dpi
        options["resolutionunit"] = "INCH"
    if picture.icc:  # as a tag: the argument for it is younger than the oldest tifffile we take
        options["extratags"] = [(_ICC, _UNDEFINED, len(picture.icc), picture.icc, True)]
    tifffile.imwrite(
        stream,
        values[:, :, 0] if planes == 1 else values,
        photometric="rgb" if planes >= 3 else "minisblack",
        planarconfig="contig" if planes > 1 else None,
        compression="zlib",
        predictor=True,
        metadata=None,
        software="nystra",
        **options,
    )
