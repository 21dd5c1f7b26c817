"""From matches to the output, differentiable: values at the centers, aggregated, or patch votes.

Memory is O(n k C), whatever the patch, in the backward pass too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nystra.models.psal.values import (
    aggregation_inputs,
    batch_offset,
    divide_by_weight,
    lowest,
    match_weights,
    mix_rows,
    neighbors,
    sum_weighted,
    take_rows,
)


def mix_values(logits: Tensor, index: Tensor, value: Tensor) -> Tensor:
    """Return the softmax over the k matches of the values at their centers (equations 4, 5, 9).

    Args:
        logits: (B, k, H, W), from ``match_logits``.
        index: (B, k, H, W), y * Wk + x, negative for an empty entry.
        value: (B, Cv, Hk, Wk).

    Returns:
        (B, Cv, H, W); 0 where every entry is empty.
    """
    rows = value.permute(0, 2, 3, 1).flatten(0, 2)
    place = index.clamp(min=0).long() + batch_offset(index, value.shape[2] * value.shape[3])
    return mix_rows(match_weights(logits, index), place, rows).permute(0, 3, 1, 2)


def aggregate_values(
    logits: Tensor,
    index: Tensor,
    value: Tensor,
    patch_size: int,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Return ``nystra.models.psal.values.aggregate_values``, differentiable in logits and value."""
    inputs = aggregation_inputs(logits, index, value, patch_size, key_mask)
    if torch.is_grad_enabled() and (logits.requires_grad or value.requires_grad):
        total: Tensor = _WeightedSums.apply(*inputs, patch_size)
    else:
        total = sum_weighted(*inputs, patch_size)
    return divide_by_weight(total)


def vote_values(
    logits: Tensor,
    index: Tensor,
    value: Tensor,
    patch_size: int,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Return the mean over the matched value patches that cover a pixel: their overlap-add.

    Each neighbor takes the softmax over its own k matches first; arguments as for
    ``aggregate_values``.
    """
    logits = torch.where(index < 0, lowest(logits.dtype), logits.log_softmax(1))
    return aggregate_values(logits, index, value, patch_size, key_mask)


class _WeightedSums(torch.autograd.Function):
    """``weighted_sums`` whose backward pass computes the weights again, neighbor by neighbor."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, place: Tensor, padded: Tensor, reference: Tensor, patch: int
    ) -> Tensor:
        ctx.save_for_backward(logits, place, padded, reference)
        ctx.patch = patch
        return sum_weighted(logits, place, padded, reference, patch)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor, None, None]:
        logits, place, padded, reference = ctx.saved_tensors
        channels = padded.shape[-1]
        rows = padded.reshape(-1, channels)
        grad_rows = torch.zeros_like(rows)
        grad_logits = torch.zeros_like(logits)
        height, width = grad.shape[1:3]
        upper = grad.unsqueeze(1)
        for part, where, a, b in neighbors(logits, place, padded, ctx.patch):
            weights = (part - reference).clamp(max=0.0).exp()
            steep = weights * (take_rows(rows, where) * upper).sum(-1)
            grad_logits[:, :, a : a + height, b : b + width] += steep
            step = weights.unsqueeze(-1) * upper
            grad_rows.index_add_(0, where.flatten(), step.flatten(0, 3))
        return grad_logits, None, grad_rows.view_as(padded), None, None
