"""Differentiable scores of matched patches, without materializing a patch.

The search gives an index; what the softmax needs is ``s(Q_i, K_j)`` of equation 9 with a
derivative. It is added up offset by offset over the patch, in the backward pass too, so that
memory is O(n C) at a time and never O(n k C p^2); on small maps, all scores are computed.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from nystra.models.geometry import PatchGeometry
from nystra.models.layers.patches import patch_scores
from nystra.models.psal.search import patch_squares

_SMALLEST_NORM = 1e-6
"""As in NystraPatchMatch: norms of the cosine are not below this."""

_SHARE = 1 / 128
"""Matches over keys from which on the matrix of all scores is cheaper than the matches alone."""


def pair_scores(query: Tensor, key: Tensor, index: Tensor, patch_size: int, metric: str) -> Tensor:
    """Return the score of every matched pair, differentiable in query and key.

    Coordinates outside a map are clamped to its border, as in ``NystraPatchMatch``.

    Args:
        query: (B, C, H, W).
        key: (B, C, Hk, Wk).
        index: (B, k, H, W), y * Wk + x of the matched patch center, negative for an empty entry.
        patch_size: Side of a patch, odd.
        metric: ``l2`` (minus the sum of squared differences), ``dot`` or ``cosine``.

    Returns:
        (B, k, H, W); -inf at empty entries.
    """
    radius = patch_size // 2
    width = key.shape[3]
    used = index.clamp(min=0).long()
    if index.shape[1] >= _SHARE * key.shape[2] * width:
        similarity: Literal["l2", "dot"] = "l2" if metric == "l2" else "dot"
        geometry = PatchGeometry(patch=patch_size, metric=similarity, border="replicate")
        every = patch_scores(query, key, geometry)
        scores = every.gather(2, used.flatten(2).transpose(1, 2)).transpose(1, 2).view(index.shape)
    else:
        base = _flat(used // width, used % width, key.shape[2], width, radius)
        padded = [_padded_rows(tensor, radius) for tensor in (query, key)]
        scores = _PairScores.apply(*padded, base, patch_size, metric == "l2")
    if metric == "cosine":
        floor = _SMALLEST_NORM
        own = patch_squares(query, patch_size).clamp(min=floor**2).rsqrt()
        other = patch_squares(key, patch_size).clamp(min=floor**2).rsqrt()
        scores = (
            scores
            * own
            * other.flatten(1)[:, None]
            .expand(-1, index.shape[1], -1)
            .gather(2, used.flatten(2))
            .view_as(scores)
        )
    return torch.where(index < 0, -torch.inf, scores)


def _padded_rows(image: Tensor, radius: int) -> Tensor:
    """Return the map as (B, H + 2 r, W + 2 r, C), its border repeated."""
    if radius:
        image = F.pad(image, (radius,) * 4, mode="replicate")
    return image.permute(0, 2, 3, 1).contiguous()


def _flat(rows: Tensor, columns: Tensor, height: int, width: int, radius: int) -> Tensor:
    """Return the index of each patch's first corner in the flattened padded maps of a batch."""
    batch = torch.arange(rows.shape[0], device=rows.device).view(-1, 1, 1, 1)
    across = width + 2 * radius
    return (batch * (height + 2 * radius) + rows) * across + columns


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, base: Tensor, patch: int, squared: bool
    ) -> Tensor:
        ctx.save_for_backward(query, key, base)
        ctx.patch, ctx.squared = patch, squared
        scores = query.new_zeros(base.shape)
        for row, column, q in _offsets(query, base, patch):
            for entry in range(base.shape[1]):
                k = _matched(key, base[:, entry], row, column)
                if squared:
                    scores[:, entry] -= (q - k).square_().sum(-1)
                else:
                    scores[:, entry] += k.mul_(q).sum(-1)
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        query, key, base = ctx.saved_tensors
        grad_query, grad_key = torch.zeros_like(query), torch.zeros_like(key)
        rows = grad_key.view(-1, key.shape[-1])
        height, width = base.shape[2:]
        for row, column, q in _offsets(query, base, ctx.patch):
            grad_rows = grad_query[:, row : row + height, column : column + width]
            for entry in range(base.shape[1]):
                k = _matched(key, base[:, entry], row, column)
                weight = grad[:, entry].unsqueeze(-1)
                if ctx.squared:
                    step = (q - k) * (2.0 * weight)
                    grad_rows -= step
                else:
                    step = q * weight
                    grad_rows += k * weight
                place = (base[:, entry] + (row * key.shape[2] + column)).flatten()
                rows.index_add_(0, place, step.flatten(0, 2))
        return grad_query, grad_key, None, None, None


def _offsets(query: Tensor, base: Tensor, patch: int) -> Any:
    """Yield row, column and the query map (B, H, W, C) shifted to them, over the patch."""
    height, width = base.shape[2:]
    for row in range(patch):
        for column in range(patch):
            yield row, column, query[:, row : row + height, column : column + width]


def _matched(key: Tensor, base: Tensor, row: int, column: int) -> Tensor:
    """Return the key pixels (B, H, W, C) at an offset of the matched patches."""
    place = (base + (row * key.shape[2] + column)).flatten()
    rows = key.view(-1, key.shape[-1]).index_select(0, place)
    return rows.view(*base.shape, -1)
