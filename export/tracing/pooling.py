"""Adaptive pooling of maps of any size, as products with the shares of each place in each mean.

PyTorch's parts of it index the map of the traced size, and are right for that alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

_POOLING = torch.ops.aten.adaptive_avg_pool2d.default


def is_pooling_of_any_size(node: fx.Node) -> bool:
    """Return whether a node takes the means of parts of a map whose sides are free."""
    if node.target != _POOLING:
        return False
    tensor: Any = node.args[0]
    sides = tensor.meta["val"].shape[-2:]
    is_free = any(isinstance(side, torch.SymInt) for side in sides)
    return is_free and list(node.args[1]) != [1, 1]  # type: ignore[arg-type]


def pool(tensor: Tensor, sizes: Any) -> Tensor:
    """Return the means (..., rows, columns) of parts of a map (..., H, W).

    The parts of a side overlap where their number does not divide it.
    """
    rows, columns = (
        _compute_shares(length, count, tensor.dtype)
        for length, count in zip(tensor.shape[-2:], sizes, strict=True)
    )
    return rows @ tensor @ columns.transpose(0, 1)


def _compute_shares(length: Any, count: Any, dtype: torch.dtype) -> Tensor:
    """Return the share (count, length) of each place in the mean of each part."""
    part = torch.arange(count)[:, None]
    place = torch.arange(length)
    first = part * length // count
    end = ((part + 1) * length + count - 1) // count
    inside = (place >= first) & (place < end)
    inside = inside.to(dtype)
    shares: Tensor = inside / inside.sum(1, keepdim=True)
    return shares
