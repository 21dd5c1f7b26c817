"""Bilinear samples of maps at places between their pixels, by gathers.

GridSample is wrong in some releases of TensorRT; a Gather of rows is not, and positions in pixels
do not depend on the size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Places(NamedTuple):
    """Positions of samples in maps that are stored as rows: pixel after pixel, some rows each.

    Attributes:
        corner: (*P, 1) int64, the row of the pixel up and left of a sample.
        steps: (4) int64, offsets from there to it and its neighbors right, below, and below right.
        weights: (*P, 4), weights of the four pixels.
    """

    corner: Tensor
    steps: Tensor
    weights: Tensor

    def split(self, axis: int) -> list[Places]:
        """Return the samples at each place of an axis of P, which stays, of length 1."""
        pairs = zip(self.corner.split(1, axis), self.weights.split(1, axis), strict=True)
        return [Places(corner, self.steps, weights) for corner, weights in pairs]


def locate(y: Tensor, x: Tensor, first: Tensor, size: tuple[int, int], stride: int = 1) -> Places:
    """Return the positions of samples, clamped to the map.

    Args:
        y: (*P), rows from the middle of the first pixel.
        x: (*P), columns.
        first: The row that a map starts with, int64, broadcast to (*P).
        size: Height and width of a map, at least 2; may be symbolic.
        stride: Rows of a pixel.
    """
    height, width = size
    y, x = y.clamp(min=0).clamp(max=height - 1), x.clamp(min=0).clamp(max=width - 1)
    upper, left = y.floor().clamp(max=height - 2), x.floor().clamp(max=width - 2)
    corner = first + (upper.long() * width + left.long()) * stride
    down, right = y - upper, x - left
    weights = ((1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right)
    pair = torch.arange(2, device=y.device)
    steps = (pair.unsqueeze(1) * (width * stride) + pair * stride).flatten()
    return Places(corner.unsqueeze(-1), steps, torch.stack(weights, -1))


def sample(rows: Tensor, places: Places) -> Tensor:
    """Return the samples (N, C) of rows (R, C): N = the product of P, one after the other.

    P may have seven axes, and TensorRT supports no more than eight.
    """
    corners = F.embedding((places.corner + places.steps).reshape(-1, 4), rows)
    return (places.weights.reshape(-1, 1, 4) @ corners).squeeze(1)


def flow_warp(image: Tensor, flow: Tensor, *, border: bool = False) -> Tensor:
    """Return an image (B, C, H, W) warped by a flow.

    Args:
        image: (B, C, H, W).
        flow: (B, 2, H, W), columns and rows from a pixel to where it comes from.
        border: Outside of the image its border continues; otherwise it is 0.
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
    samples = sample(padded.permute(0, 2, 3, 1).reshape(-1, channels), locate(y, x, first, size))
    return samples.reshape(batch, height, width, channels).permute(0, 3, 1, 2)
