"""The random numbers of ``NystraPatchMatch``: one table for every seed, in integers alone.

Kernels rebuild the table, the ONNX body holds it as a Constant; a draw reads it twice:

- ``T[i]``, i in 0..4095, modulo 2**32: ``x = i * 2654435761 + 12345; x ^= x >> 16;
  x *= 0x7feb352d; x ^= x >> 15; x *= 0x846ca68b; x ^= x >> 16; T[i] = x >> 2``, below 2**30;
- number n of the query pixel (y, x): ``u = T[(x mod 4096 + 619 (n mod 4096) + 811 seed) mod
  4096]; v = T[(y mod 4096 + u mod 4096) mod 4096]; draw = (u + v) mod 2**30``.

No step of a draw exceeds 2**31, so that int32 arithmetic gives the same numbers. The table is an
integer hash of two odd multipliers, which suffices for a search only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

SIZE = 4096
"""Entries of the table."""

NUMBER_FACTOR = 619
"""What the number of a draw is multiplied by."""

SEED_FACTOR = 811
"""What the seed is multiplied by."""

BOUND = 1 << 30
"""Every entry and every draw is below."""


def _entry(i: int) -> int:
    x = (i * 2654435761 + 12345) & 0xFFFFFFFF
    x ^= x >> 16
    x = (x * 0x7FEB352D) & 0xFFFFFFFF
    x ^= x >> 15
    x = (x * 0x846CA68B) & 0xFFFFFFFF
    x ^= x >> 16
    return x >> 2


TABLE: Integers = np.array([_entry(i) for i in range(SIZE)], dtype=np.int64)
"""The table (4096), each entry in 0..2**30 - 1."""
