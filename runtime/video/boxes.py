"""Detects truncated mp4 files by their boxes.

Decoders silently read a truncated file up to its end. The layout is that of ISO/IEC
14496-12 (section 4.2).
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from ...core.errors import NystraError

_HEAD = 8
_TO_THE_END, _LONG = 0, 1


def check_boxes(file: BinaryIO, path: Path) -> None:
    """Check that the last box of an mp4 is complete.

    Args:
        file: The file; it is left at its beginning.
        path: For the messages.

    Raises:
        NystraError: It is truncated, or the length of a box is invalid.
    """
    length = file.seek(0, os.SEEK_END)
    position = 0
    while position + _HEAD <= length:
        file.seek(position)
        size = struct.unpack(">I", file.read(_HEAD)[:4])[0]
        if size == _TO_THE_END:
            break
        if size == _LONG:
            size = struct.unpack(">Q", file.read(8).ljust(8, b"\xff"))[0]
        if size < _HEAD:
            raise NystraError(f"the video {path} is damaged: one of its boxes has {size} bytes")
        position += size
    file.seek(0)
    if position > length:
        raise NystraError(
            f"the video {path} is truncated: its last {position - length} bytes are missing"
        )
