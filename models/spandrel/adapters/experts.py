"""The experts of SeemoRe: published code runs the best ones of an image, known when it runs.

A graph has no such choice. Here all of them run, and those that were not chosen count nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Experts(nn.Module):
    """Adds what the chosen experts say to a map (B, C, H, W)."""

    def __init__(self, own: Any) -> None:
        """Take the experts and their gate of a foreign module."""
        super().__init__()
        self.experts, self.gate, self.chosen = own.experts, own.gate, own.num_expert

    def forward(self, inputs: Tensor, k: Tensor) -> Tensor:
        """Return the inputs and what the experts make of them and of k, a map of that shape."""
        weights = self.gate(inputs).softmax(dim=1)
        best, which = weights.topk(self.chosen, dim=1)
        weights = torch.zeros_like(weights).scatter(1, which, best)
        total = inputs
        for place, expert in enumerate(self.experts):
            total = total + expert(inputs, k) * weights[:, place, None, None, None]
        return total


def adapt(own: Any, _: nn.Module) -> Experts:
    """Return the module with all of its experts at work."""
    return Experts(own)
