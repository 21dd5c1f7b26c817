"""TIFF: 16-bit colour by tifffile, the rest by Pillow; written by tifffile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...plugins.errors import NystraError
from .picture import Picture

_MINISWHITE, _MINISBLACK, _RGB = 0, 1, 2
_REDUCED = 1
_ORIENTATION, _ICC = 274, 34675
_UNDEFINED = 7  # the TIFF data type of plain bytes


def is_tiff(path: Path) -> bool:
    """Return whether a file begins as TIFF or BigTIFF does."""
    with path.open("rb") as stream:
        return stream.read(4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


@contextmanager
def single_page(path: Path) -> Iterator[Any]:
    """Open a TIFF and yield its only page; reduced copies of it do not count.

    Raises:
        NystraError: The file is damaged, or holds several pictures.
    """
    import tifffile

    try:
        with tifffile.TiffFile(path) as file:
            pages = [page.aspage() for page in file.pages]
            pages = [page for page in pages if not page.subfiletype & _REDUCED] or pages[:1]
            if len(pages) != 1:
                raise NystraError(f"{path} has {len(pages)} pages, expected a single picture")
            yield pages[0]
    except (tifffile.TiffFileError, IndexError, KeyError, TypeError) as error:
        raise NystraError(f"the picture {path} is damaged or truncated: {error}") from error


def is_deep(path: Path, page: Any) -> bool:
    """Return whether a page has 16 bits a channel; fewer are read by Pillow.

    Raises:
        NystraError: It has more than 16 bits, or several layers.
    """
    if page.dtype is None or page.dtype == np.uint8 or page.bitspersample == 1:
        return False
    if page.dtype != np.uint16 or page.imagedepth != 1:
        raise NystraError(f"{path} holds {page.dtype}, expected 8 or 16 bits a channel")
    return True


def decode(path: Path, page: Any) -> tuple[Picture, int]:
    """Return a 16-bit page and its orientation (tag 274), which is not applied."""
    picture = _deep(path, page)
    tags = {tag.code: tag.value for tag in page.tags.values()}
    icc = tags.get(_ICC)
    return (
        replace(picture, icc=bytes(icc) if icc else None, dpi=_dpi(tags)),
        int(tags.get(_ORIENTATION, 1)),
    )


def _dpi(tags: dict[int, Any]) -> tuple[float, float] | None:
    """Return pixels per inch of the tags XResolution, YResolution and ResolutionUnit."""
    per_inch = {2: 1.0, 3: 2.54}.get(int(tags.get(296, 2)))
    try:
        across, down = (tags[code][0] / tags[code][1] for code in (282, 283))
    except (KeyError, TypeError, ZeroDivisionError):
        return None
    if per_inch is None or not (across > 0 and down > 0):
        return None
    return across * per_inch, down * per_inch


def _deep(path: Path, page: Any) -> Picture:
    """Return a 16-bit page."""
    try:
        values = page.asarray()
    except ValueError as error:
        if "imagecodecs" in str(error):
            raise NystraError(
                f"{path} is compressed by {page.compression.name}, which 16-bit TIFF needs "
                "imagecodecs for: pip install imagecodecs, or save it with deflate"
            ) from error
        raise
    kind = int(page.photometric)
    if kind not in (_MINISWHITE, _MINISBLACK, _RGB):
        raise NystraError(f"{path} has the colours {page.photometric.name}, expected grey or RGB")
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
        raise NystraError(f"{path} has {scaled.shape[2]} channels, expected grey or RGB and alpha")
    alpha = np.ascontiguousarray(scaled[:, :, -1])
    if extras == [1]:
        pixels = np.clip(pixels / np.maximum(alpha, 1 / 65535)[:, :, None], 0, 1)
    return Picture(pixels.astype(np.float32), alpha, 16)


def encode(path: Path, values: npt.NDArray[Any], picture: Picture) -> None:
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
        path,
        values[:, :, 0] if planes == 1 else values,
        photometric="rgb" if planes >= 3 else "minisblack",
        planarconfig="contig" if planes > 1 else None,
        compression="zlib",
        predictor=True,
        metadata=None,
        software="nystra",
        **options,
    )
