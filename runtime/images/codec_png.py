"""16-bit PNG by pypng, with ICC profile, resolution and EXIF data."""

from __future__ import annotations

import zlib
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...core.errors import NystraError
from .image_data import ImageData

_METRES_PER_INCH = 0.0254


def is_deep_color(stream: BinaryIO) -> bool:
    """Return whether a PNG has 16 bits and is not plain gray, which Pillow can read."""
    stream.seek(0)
    head = stream.read(26)
    depth, color = head[24], head[25]
    return depth == 16 and (color != 0 or b"tRNS" in stream.read(1 << 16))


def decode(stream: BinaryIO, name: str) -> ImageData:
    """Read the pixels of a 16-bit PNG whose chunks were checked.

    Raises:
        NystraError: It has fewer rows than its header says.
    """
    import png

    stream.seek(0)
    width, height, rows, info = png.Reader(file=stream).asDirect()
    planes = int(info["planes"])
    values = np.empty((height, width * planes), np.uint16)
    count = 0
    for count, row in enumerate(rows, 1):
        values[count - 1] = row
    if count != height:
        raise NystraError(f"the image {name} is truncated: {count} of {height} rows")
    values = values.reshape(height, width, planes)
    peak = np.float32((1 << int(info["bitdepth"])) - 1)
    colors = planes - 1 if planes in (2, 4) else planes
    pixels = np.divide(values[:, :, :colors], peak, dtype=np.float32, order="C")
    if colors == planes:
        return ImageData(pixels, bits=16)
    alpha = np.divide(values[:, :, -1], peak, dtype=np.float32, order="C")
    return ImageData(pixels, alpha, 16)


def encode(stream: BinaryIO, values: npt.NDArray[Any], image: ImageData) -> None:
    """Write (H, W, 1 to 4) uint16 values as PNG."""
    import io

    import png

    height, width, planes = values.shape
    writer = png.Writer(
        width, height, greyscale=planes < 3, alpha=planes in (2, 4), bitdepth=16, compression=6
    )
    body = io.BytesIO()
    writer.write(body, values.reshape(height, width * planes))
    chunks = list(png.Reader(bytes=body.getvalue()).chunks())
    extra = []
    if image.icc:
        extra.append((b"iCCP", b"ICC Profile\0\0" + zlib.compress(image.icc)))
    if image.dpi:
        per_metre = (round(value / _METRES_PER_INCH) for value in image.dpi)
        extra.append((b"pHYs", b"".join(n.to_bytes(4, "big") for n in per_metre) + b"\1"))
    if image.exif:
        extra.append((b"eXIf", image.exif.removeprefix(b"Exif\0\0")))
    png.write_chunks(stream, chunks[:1] + extra + chunks[1:])
