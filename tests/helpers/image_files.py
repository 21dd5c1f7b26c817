"""Images on disk and in memory."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from nystra.runtime import Picture


def rgb(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def png_header(width: int, height: int, depth: int = 8) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b""))
    return b"\x89PNG\r\n\x1a\n" + head + pixels + chunk(b"IEND", b"")


def picture(height: int = 8, width: int = 9) -> Picture:
    values = np.random.default_rng(height).integers(0, 256, (height, width, 3))
    return Picture(values.astype(np.float32) / 255)
