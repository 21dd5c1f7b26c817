"""From matches to output: weighted values at the centres, aggregated, or by patch votes.

Everything is index arithmetic, ``index_select`` and element-wise arithmetic, so that it exports
to standard operators; memory is O(n k C), whatever the patch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def match_logits(index: Tensor, score: Tensor, temperature: float) -> Tensor:
    """Return score / temperature (B, k, H, W), a very low finite number at empty entries."""
    return torch.where(index < 0, _lowest(score.dtype), score / temperature)


def mix_values(logits: Tensor, index: Tensor, value: Tensor) -> Tensor:
    """Return the softmax over the k matches of the values at their centres (equations 4, 5, 9).

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


def match_weights(logits: Tensor, index: Tensor) -> Tensor:
    """Return the softmax over the k matches (B, k, H, W), 0 at empty entries."""
    return logits.softmax(1) * (index >= 0).to(logits.dtype)


def mix_rows(weights: Tensor, place: Tensor, rows: Tensor) -> Tensor:
    """Return the weighted sum of the rows (N, C) at places (B, k, H, W), as (B, H, W, C)."""
    batch, k, height, width = place.shape
    matches = take_rows(rows, place.permute(0, 2, 3, 1)).view(-1, k, rows.shape[1])
    mixed = torch.bmm(weights.permute(0, 2, 3, 1).reshape(-1, 1, k), matches)
    return mixed.view(batch, height, width, -1)


def aggregate_values(
    logits: Tensor,
    index: Tensor,
    value: Tensor,
    patch_size: int,
    key_mask: Tensor | None = None,
    *,
    votes: bool = False,
) -> Tensor:
    """Return values by the matches of spatial neighbours: i takes j = j' - (i' - i).

    Aggregation (equation 10) is one softmax over the p^2 k scores of the pairs (i', j'), i' in the
    patch around i. With ``votes`` each i' first takes the softmax over its own k matches, and i
    gets the mean over the patches that cover it: the overlap-add of matched value patches.

    A neighbour i' outside the map takes no part; a position j outside the key map is clamped to
    its border; a j that ``key_mask`` excludes takes no part. Where nothing is left the output
    is 0.

    Args:
        logits: (B, k, H, W), from ``match_logits``.
        index: (B, k, H, W), y * Wk + x of j', negative for an empty entry.
        value: (B, Cv, Hk, Wk).
        patch_size: Side p of the neighbourhood, odd.
        key_mask: Broadcastable to (B, 1, Hk, Wk), above 0 where a key may be used, or None.
        votes: Weights by each neighbour's own softmax.

    Returns:
        (B, Cv, H, W), differentiable in logits and value with memory O(n k Cv).
    """
    radius = patch_size // 2
    if votes:
        logits = torch.where(index < 0, _lowest(logits.dtype), logits.log_softmax(1))
    share = value.new_ones(1, 1, 1, 1) if key_mask is None else (key_mask > 0).to(value.dtype)
    share = share.expand(value.shape[0], 1, *value.shape[2:])
    shared = torch.cat((value * share, share), 1)
    if radius:
        shared = F.pad(shared, (radius,) * 4, mode="replicate")
    padded = shared.permute(0, 2, 3, 1)
    place = _padded_place(index, value.shape[3], padded)
    border = (radius,) * 4
    outer_logits = F.pad(logits, border, value=_lowest(logits.dtype))
    outer_place = F.pad(place, border)
    if votes:
        reference = torch.zeros_like(logits[:, :1])
    else:
        reference = _reference(outer_logits, outer_place, padded, patch_size, key_mask is not None)
    arguments = (outer_logits, outer_place, padded, reference.detach(), patch_size)
    if torch.is_grad_enabled() and (logits.requires_grad or value.requires_grad):
        total: Tensor = _Aggregate.apply(*arguments)
    else:
        total = _aggregate(*arguments)
    weight = total[..., -1:]
    out = total[..., :-1] / weight.clamp(min=torch.finfo(weight.dtype).tiny)
    return out.permute(0, 3, 1, 2)


def take_rows(rows: Tensor, place: Tensor) -> Tensor:
    """Return the rows (N, C) at every place (...), as (..., C)."""
    return rows.index_select(0, place.reshape(-1)).view(*place.shape, rows.shape[-1])


def batch_offset(index: Tensor, size: int) -> Tensor:
    """Return b * size as (B, 1, 1, 1): where the maps of a batch start once flattened."""
    return (torch.arange(index.shape[0], device=index.device) * size).view(-1, 1, 1, 1)


def _lowest(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).min / 4


def _padded_place(index: Tensor, width: int, padded: Tensor) -> Tensor:
    """Return the place of the corner of each matched patch in the flattened padded maps."""
    used = index.clamp(min=0).long()
    row = torch.div(used, width, rounding_mode="trunc")
    column = used - row * width
    _, rows, columns, _ = padded.shape
    return row * columns + column + batch_offset(index, rows * columns)


def _neighbours(
    logits: Tensor, place: Tensor, padded: Tensor, patch: int
) -> Iterator[tuple[Tensor, Tensor, int, int]]:
    """Yield the logits and value places of one neighbour of every pixel, over the patch.

    Neighbour (a, b), counted from the patch's corner, lies at i + (a - r, b - r); its match
    shifted back is at j' - (a - r, b - r), that is (2 r - a, 2 r - b) from the corner of j'.
    """
    height, width = logits.shape[2] - patch + 1, logits.shape[3] - patch + 1
    across = padded.shape[2]
    for a in range(patch):
        for b in range(patch):
            shift = (patch - 1 - a) * across + (patch - 1 - b)
            part = place[:, :, a : a + height, b : b + width] + shift
            yield logits[:, :, a : a + height, b : b + width], part, a, b


def _reference(logits: Tensor, place: Tensor, padded: Tensor, patch: int, masked: bool) -> Tensor:
    """Return the largest logit (B, 1, H, W) among the entries that take part."""
    floor = _lowest(logits.dtype) / 2
    if not masked:
        best = logits.amax(1, keepdim=True)
        return F.max_pool2d(best, patch, stride=1).clamp(min=floor)
    shares = padded[..., -1:].reshape(-1, 1)
    top: Tensor | None = None
    for part, where, _, _ in _neighbours(logits, place, padded, patch):
        usable = take_rows(shares, where).squeeze(-1) > 0
        best = torch.where(usable, part, _lowest(logits.dtype)).amax(1, keepdim=True)
        top = best if top is None else torch.maximum(top, best)
    if top is None:
        raise ValueError(f"a patch of side {patch}: expected an odd number from 1 on")
    return top.clamp(min=floor)


def _aggregate(
    logits: Tensor, place: Tensor, padded: Tensor, reference: Tensor, patch: int
) -> Tensor:
    """Return the sums (B, H, W, Cv + 1) of exp(logit - reference) times [value, share]."""
    rows = padded.reshape(-1, padded.shape[-1])
    total: Tensor | None = None
    for part, where, _, _ in _neighbours(logits, place, padded, patch):
        weights = (part - reference).clamp(max=0.0).exp().unsqueeze(-1)
        added = (take_rows(rows, where) * weights).sum(1)
        total = added if total is None else total + added
    if total is None:
        raise ValueError(f"a patch of side {patch}: expected an odd number from 1 on")
    return total


class _Aggregate(torch.autograd.Function):
    """``_aggregate`` whose backward pass computes the weights again, neighbour by neighbour."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, place: Tensor, padded: Tensor, reference: Tensor, patch: int
    ) -> Tensor:
        ctx.save_for_backward(logits, place, padded, reference)
        ctx.patch = patch
        return _aggregate(logits, place, padded, reference, patch)

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
        for part, where, a, b in _neighbours(logits, place, padded, ctx.patch):
            weights = (part - reference).clamp(max=0.0).exp()
            steep = weights * (take_rows(rows, where) * upper).sum(-1)
            grad_logits[:, :, a : a + height, b : b + width] += steep
            step = weights.unsqueeze(-1) * upper
            grad_rows.index_add_(0, where.flatten(), step.flatten(0, 3))
        return grad_logits, None, grad_rows.view_as(padded), None, None
