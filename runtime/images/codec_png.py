"""16-bit PNG by pypng, with ICC profile, resolution and EXIF data."""

from __future__ import annotations

import struct
import zlib
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...core.errors import NystraError
from .inflating import inflates_within
from .picture import Picture

_METRES_PER_INCH = 0.0254


def is_deep_colour(stream: BinaryIO) -> bool:
    """Return whether a PNG has 16 bits and is more than plain grey (what Pillow can read)."""
    stream.seek(0)
    head = stream.read(26)
    depth, colour = head[24], head[25]
    return depth == 16 and (colour != 0 or b"tRNS" in stream.read(1 << 16))


def decode(stream: BinaryIO, name: str) -> Picture:
    """Read the pixels of a 16-bit PNG.

    Raises:
        NystraError: It is truncated, or holds more than its pixels.
    """
    import png

    stream.seek(0)
    width, height = struct.unpack(">II", stream.read(24)[16:])
    stream.seek(0)
    data = (part for kind, part in png.Reader(file=stream).chunks() if kind == b"IDAT")
    if not inflates_within(data, width * height * 8 + height * 4 + 4096):
        raise NystraError(f"the picture {name} is damaged: it inflates to more than its pixels")
    stream.seek(0)
    width, height, rows, info = png.Reader(file=stream).asDirect()
    values = np.vstack([np.asarray(row, dtype=np.uint16) for row in rows])
    planes = int(info["planes"])
    if values.shape != (height, width * planes):
        raise NystraError(f"the picture {name} is truncated: {len(values)} of {height} rows")
    peak = np.float32((1 << int(info["bitdepth"])) - 1)
    scaled = values.reshape(height, width, planes).astype(np.float32) / peak
    if planes in (2, 4):
        return Picture(
            np.ascontiguousarray(scaled[:, :, :-1]), np.ascontiguousarray(scaled[:, :, -1]), 16
        )
    return Picture(scaled, bits=16)


def encode(stream: BinaryIO, values: npt.NDArray[Any], picture: Picture) -> None:
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
    if picture.icc:
        extra.append((b"iCCP", b"ICC Profile\0\0" + zlib.compress(picture.icc)))
    if picture.dpi:
        per_metre = (round(value / _METRES_PER_INCH) for value in picture.dpi)
        extra.append((b"pHYs", b"".join(n.to_bytes(4, "big") for n in per_metre) + b"\1"))
    if picture.exif:
        extra.append((b"eXIf", picture.exif.removeprefix(b"Exif\0\0")))
    png.write_chunks(stream, chunks[:1] + extra + chunks[1:])
