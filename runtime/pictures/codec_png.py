"""16-bit PNG by pypng, with ICC profile, resolution and EXIF data."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...plugins.errors import NystraError
from .picture import Picture

_METRES_PER_INCH = 0.0254


def is_deep_colour(path: Path) -> bool:
    """Return whether a PNG has 16 bits and is more than plain grey (what Pillow can read)."""
    with path.open("rb") as stream:
        head = stream.read(26)
        depth, colour = head[24], head[25]
        if depth != 16:
            return False
        return colour != 0 or b"tRNS" in stream.read(1 << 16)


def decode(path: Path) -> Picture:
    """Read the pixels of a 16-bit PNG."""
    import png

    try:
        width, height, rows, info = png.Reader(filename=str(path)).asDirect()
        values = np.vstack([np.asarray(row, dtype=np.uint16) for row in rows])
    except (png.Error, IndexError, StopIteration) as error:
        raise NystraError(f"the picture {path} is damaged or truncated: {error}") from error
    planes = int(info["planes"])
    if values.shape != (height, width * planes):
        raise NystraError(f"the picture {path} is truncated: {len(values)} of {height} rows")
    peak = np.float32((1 << int(info["bitdepth"])) - 1)
    scaled = values.reshape(height, width, planes).astype(np.float32) / peak
    if planes in (2, 4):
        return Picture(
            np.ascontiguousarray(scaled[:, :, :-1]), np.ascontiguousarray(scaled[:, :, -1]), 16
        )
    return Picture(scaled, bits=16)


def encode(path: Path, values: npt.NDArray[Any], picture: Picture) -> None:
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
    with path.open("wb") as stream:
        png.write_chunks(stream, chunks[:1] + extra + chunks[1:])
