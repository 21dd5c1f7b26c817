"""The size of decompressed data, found without storing it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

_STEP = 1 << 20


def inflated_length(parts: Iterable[bytes], limit: int) -> int:
    """Return how many bytes a deflate stream holds; above ``limit`` the counting stops.

    Args:
        parts: The compressed data, in any pieces.
        limit: In bytes.

    Raises:
        zlib.error: The data is not a deflate stream, its checksum is wrong, or it has no end.
    """
    inflater, total = zlib.decompressobj(), 0
    for part in parts:
        rest = part
        while rest and not inflater.eof:
            total += len(inflater.decompress(rest, _STEP))
            if total > limit:
                return total
            rest = inflater.unconsumed_tail
    while not inflater.eof:
        more = len(inflater.decompress(inflater.unconsumed_tail, _STEP))
        if not more:
            raise zlib.error("its deflate stream is truncated")
        total += more
        if total > limit:
            return total
    return total
