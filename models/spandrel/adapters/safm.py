"""The scales of SAFMN: maxima over cells, a convolution, and an upsampling of the cells.

Published code defines cells by their number, a function of the sides that exporters do not support.
Here cells are defined by their size. Maps are padded to multiples of the largest cell, so that all
cells are whole.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Scales(nn.Module):
    """Multiplies a map (B, C, H, W) by weights from several scales; the shape stays the same."""

    def __init__(self, own: Any) -> None:
        super().__init__()
        self.mfr, self.aggr, self.act = own.mfr, own.aggr, own.act

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted map x (B, C, H, W); H and W are multiples of the largest cell."""
        first, *others = x.chunk(len(self.mfr), dim=1)
        maps = [self.mfr[0](first)]
        for level, part in enumerate(others, start=1):
            cells = self.mfr[level](F.max_pool2d(part, 2**level))
            maps.append(F.interpolate(cells, scale_factor=2.0**level, mode="nearest"))
        weighed: Tensor = self.act(self.aggr(torch.cat(maps, dim=1))) * x
        return weighed


def adapt(own: Any, _: nn.Module) -> Scales:
    """Return the module with its cells given by their size."""
    return Scales(own)
