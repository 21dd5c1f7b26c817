"""Bilinear samples of maps at places between their pixels, by gathers.

GridSample gives wrong numbers in some releases of TensorRT; a Gather of rows does not, and places
stay in pixels, which no size has to be known for.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Places(NamedTuple):
    """Where samples lie in maps that are rows: pixel after pixel, ``stride`` rows each.

    Attributes:
        corner: (*P) int64, the row of the pixel up and left of a sample.
        down: (*P), how far it is from there to the next pixel below, 0..1.
        right: (*P), how far it is to the next one at the right.
        below: Rows from a pixel to the one below.
        stride: Rows from a pixel to the one at its right.
    """

    corner: Tensor
    down: Tensor
    right: Tensor
    below: int
    stride: int

    def select(self, axis: int, place: int) -> Places:
        """Return the samples at one place of an axis."""
        corner, down, right = (
            tensor.select(axis, place) for tensor in (self.corner, self.down, self.right)
        )
        return Places(corner, down, right, self.below, self.stride)


def locate(y: Tensor, x: Tensor, first: Tensor, size: tuple[int, int], stride: int = 1) -> Places:
    """Return where samples lie; what lies beyond the map is moved to its border.

    Args:
        y: (*P), rows from the middle of the first pixel.
        x: (*P), columns.
        first: The row that a map starts with, int64, broadcast to (*P).
        size: Height and width of a map, at least 2; may be symbolic.
        stride: Rows of a pixel.
    """
    height, width = size
    y, x = y.clamp(min=0).clamp(max=height - 1), x.clamp(min=0).clamp(max=width - 1)
    up, left = y.floor().clamp(max=height - 2), x.floor().clamp(max=width - 2)
    corner = first + (up.long() * width + left.long()) * stride
    return Places(corner, y - up, x - left, width * stride, stride)


def sample(rows: Tensor, places: Places) -> Tensor:
    """Return the samples (*P, C) of rows (R, C)."""
    corner, down, right, below, stride = places
    right = right.unsqueeze(-1)

    def across(start: Tensor) -> Tensor:
        left = rows[start]
        return left + right * (rows[start + stride] - left)

    upper = across(corner)
    return upper + down.unsqueeze(-1) * (across(corner + below) - upper)


def flow_warp(image: Tensor, flow: Tensor, *, border: bool = False) -> Tensor:
    """Return an image (B, C, H, W) whose pixels come from where a flow points.

    Args:
        image: (B, C, H, W).
        flow: (B, 2, H, W), columns and rows from a pixel to where it comes from.
        border: Outside of the image its border goes on; otherwise it is 0.
    """
    batch, channels, height, width = image.shape
    rows = torch.arange(height, dtype=flow.dtype, device=flow.device).unsqueeze(1)
    columns = torch.arange(width, dtype=flow.dtype, device=flow.device)
    y, x = rows + flow[:, 1], columns + flow[:, 0]
    if border:
        y, x = y.clamp(min=0).clamp(max=height - 1), x.clamp(min=0).clamp(max=width - 1)
        padded = F.pad(image, (0, 1, 0, 1), mode="replicate")
        size = (height + 1, width + 1)
    else:
        y, x = y + 1, x + 1
        padded = F.pad(image, (1, 1, 1, 1))
        size = (height + 2, width + 2)
    first = torch.arange(batch, device=flow.device).view(-1, 1, 1) * (size[0] * size[1])
    found = sample(padded.permute(0, 2, 3, 1).reshape(-1, channels), locate(y, x, first, size))
    return found.permute(0, 3, 1, 2)
