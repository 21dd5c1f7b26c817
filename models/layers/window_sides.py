"""Windows as constructors take them: one side, or rows and columns."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import nn

from ...plugins.operators.window_schema import LARGEST_SIDE
from ..geometry import WindowGeometry

Sides: TypeAlias = tuple[int, int]


def both_sides(size: int | Sides) -> Sides:
    """Return rows and columns of a window or of the training images.

    Raises:
        ValueError: A side is not supported by the operators.
    """
    rows, columns = (size, size) if isinstance(size, int) else size
    if not (1 <= rows <= LARGEST_SIDE and 1 <= columns <= LARGEST_SIDE):
        raise ValueError(f"a side of {rows}x{columns} is not within 1 to {LARGEST_SIDE}")
    return int(rows), int(columns)


def position_bias_table(geometry: WindowGeometry) -> nn.Parameter:
    """Return a table to train, (one row per offset, heads), initialized as published."""
    sides = zip(geometry.window, geometry.key_window, strict=True)
    table = torch.zeros(math.prod(rows + keys - 1 for rows, keys in sides), geometry.heads)
    return nn.Parameter(nn.init.trunc_normal_(table, std=0.02))
