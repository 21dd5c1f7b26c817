"""The feed-forward of the window transformers, under the keys ``fc1`` and ``fc2``."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Mlp(nn.Module):
    """Two linear layers with an exact GELU between."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers' output, shaped as x (..., dim)."""
        y: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return y
