"""Replace machine code of other GPUs in a library by zeros, so that it compresses well.

CUDA's fat binaries stand in a file one after another: a header of 16 bytes or more (magic, version,
size of the header, bytes that follow), then entries, each with a header (kind, version, its size,
bytes that follow; at byte 28 the architecture) and its code. Kind 2 is machine code. PTX stays.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

MAGIC = b"\x50\xed\x55\xba"
MACHINE_CODE = 2
KINDS = frozenset({1, MACHINE_CODE, 4, 8, 16})
LARGEST = 1 << 30
"""What claims to be larger is no fat binary but bytes that look like one."""


class Pruned(NamedTuple):
    """Bytes of code that were replaced by zeros, and bytes that were not."""

    zeroed: int
    kept: int


def prune(data: bytearray, architecture: int) -> Pruned:
    """Replace machine code of other architectures by zeros, in place.

    Args:
        data: A library or any file with fat binaries inside.
        architecture: That stays, such as 90.
    """
    zeroed = kept = 0
    place = data.find(MAGIC)
    while place >= 0:
        step = len(MAGIC)
        if place + 16 <= len(data):
            version, header, size = struct.unpack_from("<HHQ", data, place + 4)
            if header in (16, 24, 32) and size <= LARGEST and version <= 4:
                step = header + size
                one = _prune_entries(data, place + header, place + step, architecture)
                zeroed, kept = zeroed + one.zeroed, kept + one.kept
        place = data.find(MAGIC, place + step)
    return Pruned(zeroed, kept)


def _prune_entries(data: bytearray, start: int, end: int, architecture: int) -> Pruned:
    zeroed = kept = 0
    while start + 64 <= min(end, len(data)):
        kind, _, header, size = struct.unpack_from("<HHIQ", data, start)
        if kind not in KINDS or header > 4096 or size > LARGEST:
            break
        (own,) = struct.unpack_from("<I", data, start + 28)
        code = start + header
        if kind == MACHINE_CODE and own != architecture:
            data[code : code + size] = bytes(size)
            zeroed += size
        else:
            kept += size
        start = code + size
    return Pruned(zeroed, kept)


def prune_file(source: Path, target: Path, architecture: int) -> Pruned:
    """Write a pruned copy of a file."""
    data = bytearray(source.read_bytes())
    size = len(data)
    result = prune(data, architecture)
    if len(data) != size:
        raise ValueError(f"{source}: an entry reaches beyond the file's end; nothing was written")
    target.write_bytes(data)
    return result
