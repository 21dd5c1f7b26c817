"""How large compressed data becomes, found without holding it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

_STEP = 1 << 20


def inflates_within(parts: Iterable[bytes], limit: int) -> bool:
    """Return whether a deflate stream holds at most ``limit`` bytes.

    Args:
        parts: The compressed data, in any pieces.
        limit: In bytes.

    Raises:
        zlib.error: The data is no deflate stream.
    """
    inflater, total = zlib.decompressobj(), 0
    for part in parts:
        rest = part
        while rest and not inflater.eof:
            total += len(inflater.decompress(rest, _STEP))
            if total > limit:
                return False
            rest = inflater.unconsumed_tail
    return True
