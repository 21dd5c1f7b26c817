"""Detects a JPEG whose scan ends early, instead of filling the rest with gray.

libjpeg silently fills what is missing after the end marker. Without the marker it asks for more
data instead, which Pillow reports. Surplus data cannot be distinguished from the padding that
cameras write, nor a truncated progressive file from one with fewer scans: those are read as they
are.
"""

from __future__ import annotations

import re
from typing import BinaryIO

_SEQUENTIAL = (0xC0, 0xC1)
_SCAN = 0xDA
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_LOOKED_AHEAD = b"\xff\x00" * 8
"""The bits that the decoder may have read after the last pixel: 64 ones, which are no code."""


def without_end(stream: BinaryIO) -> bytes | None:
    """Return a sequential JPEG up to the end of its only scan, or None for other files.

    Args:
        stream: A JPEG; it is left at its beginning.
    """
    stream.seek(0)
    data = stream.read()
    stream.seek(0)
    position, components = 2, 0
    while position + 10 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # padding
            position += 1
            continue
        if marker in _SEQUENTIAL:
            components = data[position + 9]
        if marker == _SCAN:
            whole = components == data[position + 4]
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        if marker == _SCAN:
            end = _MARKER.search(data, position)
            return data[: end.start()] + _LOOKED_AHEAD if whole and end is not None else None
    return None
