"""TIFF: gray and RGB by tifffile, other kinds by Pillow at the same page; written by tifffile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...core.errors import NystraError
from .codec_pillow import image_of, pixel_limit_lifted, with_extras
from .image_data import ImageData, plausible_dpi, turned, unpremultiplied
from .tiff_directories import only_directory
from .tiff_segments import DEFLATE, LZW, NONE, PACKBITS, check_segments, named

_MINISWHITE, _MINISBLACK, _RGB = 0, 1, 2
_ORIENTATION, _ICC = 274, 34675
_UNDEFINED = 7  # the TIFF data type of plain bytes


@contextmanager
def opened(stream: BinaryIO, name: str) -> Iterator[TiffFile]:
    """Open a TIFF at its only image; reduced copies of it are ignored.

    Raises:
        NystraError: The file is damaged, or holds several images.
    """
    import tifffile

    index = only_directory(stream, name)
    with _log_silenced(), tifffile.TiffFile(stream) as file:
        yield TiffFile(stream, name, index, file.pages[index].aspage())


class TiffFile:
    """A TIFF that is open at a page; see `ImageFile`."""

    format = "TIFF"

    def __init__(self, stream: BinaryIO, name: str, index: int, page: Any) -> None:
        """Take a page of tifffile and its index."""
        self.size = (page.imagelength, page.imagewidth)
        self._stream, self._name, self._index, self._page = stream, name, index, page
        self._tags = {tag.code: tag for tag in page.tags.values()}

    def orientation(self) -> int:
        """Return the orientation."""
        value = self._value(_ORIENTATION)
        return value if isinstance(value, int) else 1

    def decode(self) -> ImageData:
        """Return the image with profile and resolution.

        Raises:
            NystraError: The compression or the color space is not supported, or the page does not
                hold exactly the pixels that its tags state.
        """
        name, page = self._name, self._page
        deep = _is_deep(name, page)
        if deep:
            _check_kind(name, page)
        check_segments(self._stream, name, page)
        if not (deep or _is_plain(page)):
            return self._by_pillow()
        icc = self._value(_ICC)
        dpi = _dpi({code: self._value(code) for code in (282, 283, 296) if code in self._tags})
        icc = icc if icc and isinstance(icc, bytes) else None
        return turned(replace(_by_tifffile(name, page), icc=icc, dpi=dpi), self.orientation())

    def _by_pillow(self) -> ImageData:
        """Return the same page by Pillow, which applies the orientation."""
        from PIL import Image

        self._stream.seek(0)
        with pixel_limit_lifted(), Image.open(self._stream, formats=["TIFF"]) as image:
            image.seek(self._index)
            if sorted(image.size) != sorted(self.size):  # before the pixels take their memory
                raise NystraError(
                    f"the image {self._name} is damaged: two libraries read different sizes, "
                    f"{image.size} and {self.size[::-1]}"
                )
            image.load()
            return with_extras(image_of(image, self._name), image)

    def _value(self, code: int) -> Any:
        tag = self._tags.get(code)
        return None if tag is None else tag.value


def _is_deep(name: str, page: Any) -> bool:
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


def _is_plain(page: Any) -> bool:
    """Return whether a page is gray or RGB of 8 bits that tifffile alone can decode."""
    extras = [int(item) for item in page.extrasamples]
    colors = 3 if int(page.photometric) == _RGB else 1
    return (
        page.dtype == np.uint8
        and page.bitspersample == 8
        and int(page.photometric) in (_MINISWHITE, _MINISBLACK, _RGB)
        and int(page.compression) in (NONE, *DEFLATE, PACKBITS)
        and page.samplesperpixel == colors + len(extras)
        and extras in ([], [1], [2])
    )


def _check_kind(name: str, page: Any) -> None:
    if int(page.photometric) not in (_MINISWHITE, _MINISBLACK, _RGB):
        raise NystraError(
            f"{name} has the color space {named(page.photometric)}, expected gray or RGB"
        )
    if page.samplesperpixel > 4:
        raise NystraError(
            f"{name} has {page.samplesperpixel} channels, expected gray or RGB, and alpha"
        )
    compression = int(page.compression)
    if compression in (NONE, *DEFLATE, PACKBITS) or (
        compression == LZW and find_spec("imagecodecs")
    ):
        return
    advice = "install imagecodecs, or " if compression == LZW else ""
    raise NystraError(
        f"{name} is compressed by {named(page.compression)}, which is not supported with 16 "
        f"bits: {advice}save it with deflate"
    )


def _dpi(tags: dict[int, Any]) -> tuple[float, float] | None:
    """Return pixels per inch of the tags XResolution, YResolution and ResolutionUnit."""
    try:
        per_inch = {2: 1.0, 3: 2.54}[int(tags.get(296, 2))]
        across, down = (tags[code][0] / tags[code][1] * per_inch for code in (282, 283))
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError):
        return None
    return plausible_dpi(across, down)


def _by_tifffile(name: str, page: Any) -> ImageData:
    """Return a page of gray or RGB in 8 or 16 bits."""
    values = page.asarray()
    kind = int(page.photometric)
    if page.axes == "SYX":
        values = np.moveaxis(values, 0, 2)
    elif page.axes == "YX":
        values = values[:, :, None]
    planes, colors = values.shape[2], 3 if kind == _RGB else 1
    extras = [int(item) for item in page.extrasamples]
    if planes != colors and (planes > colors + 1 or extras not in ([1], [2])):
        raise NystraError(f"{name} has {planes} channels, expected gray or RGB, and alpha")
    peak = np.float32(np.iinfo(values.dtype).max)
    pixels = np.divide(values[:, :, :colors], peak, dtype=np.float32, order="C")
    if kind == _MINISWHITE:
        pixels = np.float32(1) - pixels
    if planes == colors:
        return ImageData(pixels, bits=page.bitspersample)
    alpha = np.divide(values[:, :, -1], peak, dtype=np.float32, order="C")
    return ImageData(
        unpremultiplied(pixels, alpha) if extras == [1] else pixels, alpha, page.bitspersample
    )


class _MutedLog(logging.Filter):
    """Drops the messages of a logger in the threads that requested it."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(self.silent, "depth", 0)


_silence = _MutedLog()


@contextmanager
def _log_silenced() -> Iterator[None]:
    """Keep tifffile's log off the terminal: its relevant messages are errors here."""
    logger = logging.getLogger("tifffile")
    logger.addFilter(_silence)  # once, however often
    _silence.silent.depth = getattr(_silence.silent, "depth", 0) + 1
    try:
        yield
    finally:
        _silence.silent.depth -= 1


def encode(stream: BinaryIO, values: npt.NDArray[Any], image: ImageData) -> None:
    """Write (H, W, 1 to 4) uint8 or uint16 values as TIFF."""
    import tifffile

    planes = values.shape[2]
    options: dict[str, Any] = {}
    if planes in (2, 4):
        options["extrasamples"] = ["unassalpha"]
    if image.dpi:
        options["resolution"] = image.dpi
        options["resolutionunit"] = "INCH"
    if image.icc:  # as a tag: the argument for it is younger than the oldest tifffile we take
        options["extratags"] = [(_ICC, _UNDEFINED, len(image.icc), image.icc, True)]
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
