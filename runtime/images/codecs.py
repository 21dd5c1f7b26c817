"""Which library decodes and encodes what.

Pillow has everything in 8 bits and gray in 16, but silently drops the lower half of 16-bit color;
pypng (PNG) and tifffile (TIFF) read that. A file is opened once for its size and its pixels, so
that the pixels have the size that was checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from ...core.errors import NystraError
from . import codec_pillow, codec_png
from .image_data import ImageData, quantize
from .image_file import ImageFile, upright_size
from .tiff_directories import is_tiff


@contextmanager
def opened(stream: BinaryIO, name: str) -> Iterator[ImageFile]:
    """Open an image file.

    Args:
        stream: At its beginning.
        name: What to call it in the messages.

    Raises:
        NystraError: The format is not supported, or the block that uses the file fails.
    """
    codec = _tiff() if is_tiff(stream) else codec_pillow
    with _explained(name), codec.opened(stream, name) as file:
        yield file


def decode(stream: BinaryIO, name: str, max_pixels: int) -> ImageData:
    """Read an image file; see `nystra.runtime.images.images.decode_image`."""
    with opened(stream, name) as file:
        _check_size(name, file.size, max_pixels)
        image = file.decode()
        height, width = upright_size(file)
        if image.size != (height, width):
            raise NystraError(
                f"the image {name} is damaged: its header says {width}x{height}, its pixels are "
                f"{image.size[1]}x{image.size[0]}"
            )
        return image


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn any error of the codecs into a message about the image."""
    try:
        yield
    except NystraError:
        raise
    except MemoryError as error:
        raise NystraError(f"not enough memory to read the image {name}") from error
    except Exception as error:  # the codecs raise whatever a damaged file makes them run into
        from PIL import UnidentifiedImageError

        if isinstance(error, UnidentifiedImageError):
            kinds = ", ".join(codec_pillow.FORMATS)
            raise NystraError(
                f"{name} is not an image in a supported format: expected {kinds} (AVIF needs "
                "Pillow 11.3 or newer)"
            ) from error
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise NystraError(f"the image {name} is damaged or truncated: {reason}") from error


def encode(stream: BinaryIO, kind: str, image: ImageData, quality: int | None = None) -> None:
    """Write an image file of a kind; see `nystra.runtime.images.images.encode_image`."""
    channels = image.pixels
    if image.alpha is not None:
        channels = np.concatenate([channels, image.alpha[:, :, None]], axis=2)
    values = quantize(channels, image.bits)
    if kind == "TIFF":
        _tiff().encode(stream, values, image)
    elif image.bits == 16:
        codec_png.encode(stream, values, image)
    else:
        codec_pillow.encode(stream, kind, values, image, quality)


def _tiff() -> Any:
    """Return the codec of TIFF, imported when there is such a file."""
    from . import codec_tiff

    return codec_tiff


def _check_size(name: str, size: tuple[int, int], max_pixels: int) -> None:
    height, width = size
    if width < 1 or height < 1:
        raise NystraError(f"the image {name} is {width}x{height}: it has no pixels")
    if width * height > max_pixels:
        raise NystraError(
            f"the image {name} declares {width}x{height}, more than {max_pixels} pixels: cut "
            "it into parts, or raise NYSTRA_MAX_PIXELS if the size is right; see docs/running.md"
        )
