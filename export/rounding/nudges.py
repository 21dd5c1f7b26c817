"""Inputs that differ by as much as rounding: they show what rounding alone changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...core.arrays import Array

_NUDGES = 3
_LAST_DIGITS = 1e-6
"""Standard deviation of a perturbation, relative to the value: about eight units in the last
place."""


def nudge(arrays: Sequence[Array]) -> Iterator[list[Array]]:
    """Yield floating-point arrays with other last digits, three times; integers stay."""
    for seed in range(_NUDGES):
        random = np.random.default_rng(seed)
        factors = [1 + _LAST_DIGITS * random.standard_normal(array.shape) for array in arrays]
        yield [
            (array * factor).astype(array.dtype) if array.dtype.kind == "f" else array
            for array, factor in zip(arrays, factors, strict=True)
        ]
