"""The decoded size of LZW data in a TIFF, found without decoding it.

The layout is that of TIFF 6.0 (section 13): codes of 9 to 12 bits, the most significant bit first,
which widen one code early. After a clear code every code adds one entry to the table, so the width
and place of each code follow from its number alone, and a block of codes is read at once.
"""

from __future__ import annotations

import numpy as np

from ...core.arrays import Array

_CLEAR, _END, _FIRST = 256, 257, 258
_WIDTHS = np.repeat((9, 10, 11, 12), (254, 512, 1024, 2048)).astype(np.int64)
"""Bits of each code after a clear code; the table is full behind the last one."""

_STARTS = np.concatenate([[0], np.cumsum(_WIDTHS)])


def decoded_length(data: bytes, limit: int) -> int:
    """Return how many bytes LZW data decodes to; above ``limit`` the counting may stop.

    Raises:
        ValueError: The data is not LZW data of this layout.
    """
    padded = np.frombuffer(data + bytes(3), np.uint8)
    total = position = 0
    while total <= limit:
        codes = _codes(padded, position, 8 * len(data))
        (marks,) = np.nonzero((codes == _CLEAR) | (codes == _END))
        if not marks.size:
            if len(codes) == len(_WIDTHS):
                raise ValueError("its LZW table overflows")
            return total + _lengths(codes)  # the end code is left out by some encoders
        first = int(marks[0])
        total += _lengths(codes[:first])
        if codes[first] == _END:
            return total
        position += int(_STARTS[first + 1])
    return total


def _codes(padded: Array, position: int, end: int) -> Array:
    """Return the whole codes from a bit on, at most one table's worth."""
    count = int(np.searchsorted(_STARTS[1:], end - position, side="right"))
    starts, widths = position + _STARTS[:count], _WIDTHS[:count]
    at = starts >> 3
    window = padded[at].astype(np.int64) << 16 | padded[at + 1].astype(np.int64) << 8
    window |= padded[at + 2]
    codes: Array = (window >> (24 - (starts & 7) - widths)) & ((1 << widths) - 1)
    return codes


def _lengths(codes: Array) -> int:
    """Return the bytes that codes stand for: each of the table one more than the code it extends.

    The chains of codes are followed by pointer jumping, all at once.
    """
    count = len(codes)
    extended = np.where(codes < _CLEAR, count, codes - _FIRST)
    if bool(np.any((codes >= _FIRST) & (extended >= np.arange(count)))):
        raise ValueError("an LZW code is outside its table")
    lengths = np.append(np.ones(count, np.int64), 0)
    extended = np.append(extended, count)
    while bool(np.any(extended < count)):
        lengths += lengths[extended]
        extended = extended[extended]
    return int(lengths.sum())
