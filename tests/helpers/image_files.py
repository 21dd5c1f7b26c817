"""Images on disk and in memory."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from nystra.runtime import ImageData


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


def make_image(height: int = 8, width: int = 9) -> ImageData:
    values = np.random.default_rng(height).integers(0, 256, (height, width, 3))
    return ImageData(values.astype(np.float32) / 255)


def with_tag(content: bytes, tag: int, value: int, directory: int = 0) -> bytes:
    """Return a little-endian TIFF with another value of a tag of one number."""
    data = bytearray(content)
    at = struct.unpack_from("<I", data, 4)[0]
    for _ in range(directory):
        at = struct.unpack_from("<I", data, at + 2 + 12 * struct.unpack_from("<H", data, at)[0])[0]
    for entry in range(at + 2, at + 2 + 12 * struct.unpack_from("<H", data, at)[0], 12):
        code, kind = struct.unpack_from("<HH", data, entry)
        if code == tag:
            kind = 4 if value > 65535 else kind
            struct.pack_into("<HHI", data, entry, code, kind, 1)
            struct.pack_into("<H" if kind == 3 else "<I", data, entry + 8, value)
            return bytes(data)
    raise ValueError(f"no tag {tag}")
