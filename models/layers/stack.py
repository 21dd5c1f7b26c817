"""Blocks one after the other, under the key ``blocks``."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


class Stack(nn.Module):
    """Blocks that run one after the other and keep the shape."""

    def __init__(self, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Return the last block's output for x."""
        for block in self.blocks:
            x = block(x)
        return x
