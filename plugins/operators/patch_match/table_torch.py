"""The draws of ``random_table`` in torch."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from .random_table import BOUND, NUMBER_FACTOR, SEED_FACTOR, SIZE, TABLE


@functools.cache
def _table(device: torch.device) -> Tensor:
    return torch.from_numpy(TABLE).to(device)


def draw(y: Tensor, x: Tensor, number: int, seed: int) -> Tensor:
    """Return draws in 0..2**30 - 1 of the query pixels in rows ``y`` and columns ``x`` (int64)."""
    table = _table(y.device)
    u = table[(x % SIZE + NUMBER_FACTOR * (number % SIZE) + SEED_FACTOR * seed) % SIZE]
    v = table[(y % SIZE + u % SIZE) % SIZE]
    return (u + v) % BOUND
