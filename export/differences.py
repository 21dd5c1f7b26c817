"""How far results are from expected ones, where a NaN is never lost, and what rounding changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ..core.arrays import Array

_SMALLEST = 1e-30
"""Largest value that expected results of zeros are taken to have."""

_NUDGES = 3
_LAST_DIGITS = 1e-6
"""Standard deviation of a perturbation, relative to the value: about eight units in the last
place."""


def relative_difference(
    results: Sequence[Tensor | Array], expected: Sequence[Tensor | Array]
) -> float:
    """Return the largest difference of results, relative to the largest expected value of each.

    It is NaN if a result or an expected one has NaN, and infinite if shapes differ: compare it by
    ``not difference <= limit``.

    Args:
        results: Results, of any types and shapes.
        expected: As many expected ones, of the same shapes.
    """
    shapes = [tuple(result.shape) for result in results]
    if shapes != [tuple(other.shape) for other in expected]:
        return float("inf")
    differences = [
        _difference(_as_double(one), _as_double(other))
        for one, other in zip(results, expected, strict=True)
    ]
    return largest(differences)


def largest(values: Sequence[float]) -> float:
    """Return the largest of some numbers, 0 of none; NaN if one is, which `max` may lose."""
    return float(np.max(values, initial=0.0))


def nudge(arrays: Sequence[Array]) -> Iterator[list[Array]]:
    """Yield floating-point arrays with other last digits, three times; integers stay."""
    for seed in range(_NUDGES):
        random = np.random.default_rng(seed)
        factors = [1 + _LAST_DIGITS * random.standard_normal(array.shape) for array in arrays]
        yield [
            (array * factor).astype(array.dtype) if array.dtype.kind == "f" else array
            for array, factor in zip(arrays, factors, strict=True)
        ]


def _difference(one: Array, other: Array) -> float:
    if one.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):  # infinite in both: NaN
        largest = max(np.abs(other).max(), _SMALLEST)
        return float(np.abs(one - other).max() / largest)


def _as_double(result: Tensor | Array) -> Array:
    if isinstance(result, Tensor):
        result = result.detach().to("cpu", torch.float64).numpy()
    return np.asarray(result, np.float64)
