"""ESC's convolutional attention: a large filter of the network and a small one of the image.

The small filter is computed from the mean over the whole map, so the result of a tile differs
from that part of the result of the image.
"""

from __future__ import annotations

import operator
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def symmetric(filters: Tensor) -> Tensor:
    """Return the mean of the 8 rotations and reflections of filters (..., k, k)."""
    filters = filters + filters.flip(-1)
    filters = filters + filters.flip(-2)
    return (filters + filters.mT) / 8


def depthwise_of(x: Tensor, filters: Tensor) -> Tensor:
    """Return the depthwise convolution of each image with its own filters, padded with zeros.

    Computed as nine products, since a convolution has one filter for all images of a batch.

    Args:
        x: (B, C, H, W).
        filters: (B, C, 3, 3).
    """
    padded = F.pad(x, (1, 1, 1, 1))
    ends = (-2, -1, None)
    terms = (
        padded[:, :, i : ends[i], j : ends[j]] * filters[:, :, i, j, None, None]
        for i in range(3)
        for j in range(3)
    )
    return reduce(operator.add, terms)


def _filter_network(width: int, inner: int) -> nn.Sequential:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(width, inner, 1),
        nn.GELU(),
        nn.Conv2d(inner, 9 * width, 1),
    )


class LargeFilter(nn.Module):
    """A full convolution with the network's filter, and the small filter of the image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dwc_proj = _filter_network(width, width // 2)

    def forward(self, x: Tensor, shared: Tensor) -> Tensor:
        """Return the sum of both convolutions of x (B, width, H, W).

        Args:
            x: The map.
            shared: The large filter, (width, width, k, k).
        """
        own = self.dwc_proj(x).unflatten(1, (x.shape[1], 3, 3)).squeeze((-1, -2))
        return F.conv2d(x, shared, padding=shared.shape[-1] // 2) + depthwise_of(x, own)


class SeparatedFilter(nn.Module):
    """The form of ESC-FP: channels are mixed first, and the large filter is depthwise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = _filter_network(width, width // 4)

    def forward(self, x: Tensor, channels: Tensor, places: Tensor) -> Tensor:
        """Return the sum of both convolutions of x (B, width, H, W), its channels mixed.

        Args:
            x: The map; the small filter is computed from it.
            channels: Mixes the channels, (width, width, 1, 1).
            places: The large filter, (width, 1, k, k).
        """
        own = self.proj(x).unflatten(1, (x.shape[1], 3, 3)).squeeze((-1, -2))
        mixed = F.conv2d(x, channels)
        large = F.conv2d(mixed, places, padding=places.shape[-1] // 2, groups=x.shape[1])
        return large + depthwise_of(mixed, own)


class PartialConvolution(nn.Module):
    """Convolutional attention of the first channels, then a mix of all: (B, dim, H, W)."""

    def __init__(self, dim: int, part: int, attention: nn.Module) -> None:
        super().__init__()
        self.part = part
        self.plk = attention
        self.aggr = nn.Conv2d(dim, dim, 1)

    def forward(self, x: Tensor, *shared: Tensor) -> Tensor:
        """Return the layers' output for x and the network's filters."""
        first, rest = x.split((self.part, x.shape[1] - self.part), 1)
        y: Tensor = self.aggr(torch.cat([self.plk(first, *shared), rest], 1))
        return y
