"""The scales of SAFMN: maxima over cells, a convolution, and every cell at its size again.

Published code asks for cells by their number, a function of the picture's sides that no exporter
translates. Here the rows of every cell are gathered: the same cells, whatever the sides are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Scales(nn.Module):
    """Weighs a map (B, C, H, W) by what it is at several scales: the same shape."""

    def __init__(self, own: Any) -> None:
        """Take the convolutions of a foreign module."""
        super().__init__()
        self.mfr, self.aggr, self.act = own.mfr, own.aggr, own.act

    def forward(self, x: Tensor) -> Tensor:
        """Return the map x, weighed."""
        first, *others = x.chunk(len(self.mfr), dim=1)
        maps = [self.mfr[0](first)]
        for level, part in enumerate(others, start=1):
            cells = self.mfr[level](largest(largest(part, 2, 2**level), 3, 2**level))
            maps.append(repeated(repeated(cells, 2, x.shape[2]), 3, x.shape[3]))
        weighed: Tensor = self.act(self.aggr(torch.cat(maps, dim=1))) * x
        return weighed


def largest(maps: Tensor, axis: int, step: int) -> Tensor:
    """Return the largest value of every cell of an axis: size // step cells, nearly equal.

    Cell i reaches from floor(i size / count) to ceil((i + 1) size / count), as in adaptive pooling:
    less than 2 step rows, whatever the size.
    """
    size = maps.shape[axis]
    count = size // step
    cell = torch.arange(count, device=maps.device)
    begin = torch.div(cell * size, count, rounding_mode="floor")
    last = torch.div((cell + 1) * size + count - 1, count, rounding_mode="floor") - 1
    rows = begin[:, None] + torch.arange(2 * step, device=maps.device)
    rows = torch.minimum(rows, last[:, None])
    gathered = maps.index_select(axis, rows.flatten())
    shape = (*maps.shape[:axis], count, 2 * step, *maps.shape[axis + 1 :])
    return gathered.reshape(shape).amax(axis + 1)


def repeated(cells: Tensor, axis: int, size: int) -> Tensor:
    """Return an axis at a size: every place has the value of the nearest cell before it."""
    place = torch.arange(size, device=cells.device)
    index = torch.div(place * cells.shape[axis], size, rounding_mode="floor")
    return cells.index_select(axis, index)


def adapt(own: Any, _: nn.Module) -> Scales:
    """Return the module with its cells gathered."""
    return Scales(own)
