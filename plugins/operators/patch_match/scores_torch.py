"""Scores of pairs of patches in torch, gathered row by row of a patch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .schema import COSINE, L2, SMALLEST_NORM

_NUMBERS_AT_ONCE = 1 << 18
"""Numbers that are gathered at a time: bounds the memory, and what stays in cache is 4 times as
fast as 1 << 21."""


class _Strips:
    """Images (B, C, H, W), clamped at their borders, as rows of patches: p pixels of C channels."""

    def __init__(self, images: Tensor, patch_size: int) -> None:
        radius = patch_size // 2
        rows, cols = (
            torch.arange(-radius, size + radius, device=images.device).clamp(0, size - 1)
            for size in images.shape[2:]
        )
        padded = images.permute(0, 2, 3, 1)[:, rows][:, :, cols].contiguous()
        batch, channels, height, self._width = images.shape
        self._down, self._across, self._height = len(rows), len(cols), height
        self.numbers = patch_size * channels
        count = batch * len(rows) * len(cols) - patch_size + 1
        self._strips = padded.as_strided((count, self.numbers), (channels, 1))

    def corners(self, pixels: Tensor) -> Tensor:
        """Return where the patches of the pixels (flat indices) begin."""
        lines = pixels // self._width  # of all images, one below the other
        lines = lines + lines // self._height * (self._down - self._height)
        return lines * self._across + pixels % self._width

    def at(self, corners: Tensor, row: int) -> Tensor:
        """Return row ``row`` of the patches that begin there, (patches, p C)."""
        return self._strips.index_select(0, corners + row * self._across)


class PairScores:
    """The score of pairs of a query pixel and a key: higher is better, NaN becomes -inf."""

    def __init__(self, query: Tensor, key: Tensor, patch_size: int, metric: int) -> None:
        """Prepare the images query (B, C, H, W) and key (B, C, Hk, Wk)."""
        self.dtype = query.dtype
        self._metric, self._patch_size = metric, patch_size
        self._query, self._key = _Strips(query, patch_size), _Strips(key, patch_size)
        if metric == COSINE:
            self._query_norm = self._norms(self._query, query)
            self._key_norm = self._norms(self._key, key)

    def _norms(self, strips: _Strips, images: Tensor) -> Tensor:
        """Return the norm of the patch of each pixel of the images, (B * H * W)."""
        count = images.shape[0] * images.shape[2] * images.shape[3]
        pixels = torch.arange(count, device=images.device)
        squares = self._sums(strips, pixels, strips, pixels, lambda a, _: a.square())
        return squares.sqrt().clamp(min=SMALLEST_NORM)

    def _sums(
        self,
        first: _Strips,
        pixels: Tensor,
        second: _Strips,
        keys: Tensor,
        term: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Return the sum of a term over the patches of each pair, (pairs)."""
        parts = []
        at_once = max(1, _NUMBERS_AT_ONCE // max(1, first.numbers))
        corners = zip(
            first.corners(pixels).split(at_once), second.corners(keys).split(at_once), strict=True
        )
        for a, b in corners:
            sums = torch.zeros(len(a), dtype=self.dtype, device=a.device)
            for row in range(self._patch_size):
                sums += term(first.at(a, row), second.at(b, row)).sum(1)
            parts.append(sums)
        return torch.cat(parts)

    def __call__(self, pixels: Tensor, keys: Tensor) -> Tensor:
        """Return the scores (pairs) of query pixels and keys, both flat indices (pairs).

        Flat indices run over the pixels of all images; a pair lies in one element of the batch.
        """
        if self._metric == L2:
            score = -self._sums(
                self._query, pixels, self._key, keys, lambda a, b: a.sub_(b).square_()
            )
        else:
            score = self._sums(self._query, pixels, self._key, keys, lambda a, b: a.mul_(b))
        if self._metric == COSINE:
            score = score / self._query_norm[pixels] / self._key_norm[keys]
        return torch.where(score.isnan(), -torch.inf, score)
