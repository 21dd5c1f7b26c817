"""TIFF: 16-bit colour by tifffile, the rest by Pillow; written by tifffile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..plugins.errors import NystraError
from .images import Picture

_MINISWHITE, _MINISBLACK, _RGB = 0, 1, 2
_REDUCED = 1


def decode(path: Path, by_pillow: Callable[[], Picture]) -> Picture:
    """Read the pixels of a TIFF; 8-bit ones through ``by_pillow``."""
    import tifffile

    try:
        with tifffile.TiffFile(path) as file:
            pages = [page.aspage() for page in file.pages]
            pages = [page for page in pages if not page.subfiletype & _REDUCED] or pages[:1]
            if len(pages) != 1:
                raise NystraError(f"{path} has {len(pages)} pages, expected a single picture")
            page = pages[0]
            if page.dtype is None or page.dtype == np.uint8 or page.bitspersample == 1:
                return by_pillow()
            if page.dtype != np.uint16 or page.imagedepth != 1:
                raise NystraError(f"{path} holds {page.dtype}, expected 8 or 16 bits a channel")
            return _deep(path, page)
    except tifffile.TiffFileError as error:
        raise NystraError(f"the picture {path} is damaged or truncated: {error}") from error


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
    tifffile.imwrite(
        path,
        values[:, :, 0] if planes == 1 else values,
        photometric="rgb" if planes >= 3 else "minisblack",
        planarconfig="contig" if planes > 1 else None,
        compression="zlib",
        predictor=True,
        iccprofile=picture.icc,
        metadata=None,
        software="nystra",
        **options,
    )
