"""Padding a picture to a multiple and cropping it back, inside the traced graph.

Written with ``index_select`` because its index may depend on a symbolic size: the exported
graph then takes every size of one pixel and more.
"""

from __future__ import annotations

import torch
from torch import Tensor


def reflect_index(size: int, multiple: int) -> Tensor:
    """Return which rows to take to mirror ``size`` rows up to a multiple.

    The edge row is not repeated, and the picture is mirrored as often as needed, which equals
    the usual reflect padding wherever that is defined (pad smaller than the size).

    Args:
        size: Number of rows, at least 1; may be symbolic.
        multiple: Rows after padding are the next multiple of it.

    Returns:
        int64 (ceil(size / multiple) * multiple,), values in [0, size).
    """
    period = torch.full((1,), 2 * size - 2).clamp(min=1)
    position = torch.arange((size + multiple - 1) // multiple * multiple) % period
    return torch.minimum(position, period - position)


def pad_to_multiple(image: Tensor, multiple: tuple[int, int]) -> Tensor:
    """Mirror an image (B, C, H, W) at the bottom and right up to a multiple of rows and columns."""
    rows = reflect_index(image.shape[2], multiple[0]).to(image.device)
    columns = reflect_index(image.shape[3], multiple[1]).to(image.device)
    return image.index_select(2, rows).index_select(3, columns)


def crop(image: Tensor, height: int, width: int) -> Tensor:
    """Return the top left ``height`` x ``width`` of an image (..., H, W)."""
    rows = torch.arange(height, device=image.device)
    columns = torch.arange(width, device=image.device)
    first = image.dim() - 2
    return image.index_select(first, rows).index_select(first + 1, columns)
