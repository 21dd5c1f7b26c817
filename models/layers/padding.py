"""Padding an image and cropping it back, inside the traced graph.

Written with ``index_select`` because its index may depend on a symbolic size: the exported
graph then takes every size of one pixel and more.
"""

from __future__ import annotations

import torch
from torch import Tensor


def reflect_index(size: int, multiple: int, before: int = 0) -> Tensor:
    """Return which rows to take to mirror ``size`` rows up to a multiple.

    The edge row is not repeated, and the image is mirrored as often as needed, which equals
    the usual reflect padding wherever that is defined (pad smaller than the size).

    Args:
        size: Number of rows, at least 1; may be symbolic.
        multiple: Rows after padding are the next multiple of it.
        before: Rows that come before the first one.

    Returns:
        int64 (ceil((before + size) / multiple) * multiple,), values in [0, size).
    """
    return _mirror(size, (before + size + multiple - 1) // multiple * multiple, before)


def _mirror(size: int, total: int, before: int) -> Tensor:
    period = torch.full((1,), 2 * size - 2).clamp(min=1)
    place = torch.arange(total)
    position = (place - before).abs() % period if before else place % period
    return torch.minimum(position, period - position)


def pad_to_multiple(
    image: Tensor, multiple: tuple[int, int], before: tuple[int, int] = (0, 0), *, first: int = 2
) -> Tensor:
    """Pad an image (B, C, H, W) by mirroring to a multiple of rows and columns.

    Args:
        image: The image.
        multiple: The size multiple of rows and columns.
        before: Rows and columns of padding at the top and left; the rest is at the bottom and
            right.
        first: Axis of the rows, followed by that of the columns: 1 for a map (B, H, W, C), in
            which onnxruntime copies whole pixels instead of single values.
    """
    rows = reflect_index(image.shape[first], multiple[0], before[0]).to(image.device)
    columns = reflect_index(image.shape[first + 1], multiple[1], before[1]).to(image.device)
    return image.index_select(first, rows).index_select(first + 1, columns)


def mirror(image: Tensor, margins: tuple[int, int]) -> Tensor:
    """Mirror an image (B, C, H, W) by so many rows and columns on each side."""
    for axis, more in zip((2, 3), margins, strict=True):
        size = image.shape[axis]
        image = image.index_select(axis, _mirror(size, size + 2 * more, more).to(image.device))
    return image


def crop(
    image: Tensor,
    height: int,
    width: int,
    before: tuple[int, int] = (0, 0),
    *,
    first: int = -2,
) -> Tensor:
    """Return ``height`` x ``width`` pixels of an image from ``before`` on.

    Args:
        image: (..., H, W), or a map (B, H, W, C).
        height: Rows to keep.
        width: Columns to keep.
        before: Rows and columns to skip at the top and left.
        first: Axis of the rows, followed by that of the columns; 1 for a map.
    """
    rows = torch.arange(height, device=image.device)
    columns = torch.arange(width, device=image.device)
    first %= image.dim()
    if any(before):
        rows, columns = rows + before[0], columns + before[1]
    return image.index_select(first, rows).index_select(first + 1, columns)
