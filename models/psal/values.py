"""From matches to output: the values of the matches, or those of the neighbors' matches too.

Everything is index arithmetic, ``index_select`` and element-wise arithmetic, so that it exports
to standard operators; memory is O(n k C), whatever the patch.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor


def match_logits(index: Tensor, score: Tensor, temperature: float) -> Tensor:
    """Return score / temperature (B, k, H, W), a very low finite number at empty entries."""
    return torch.where(index < 0, lowest(score.dtype), score / temperature)


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
) -> Tensor:
    """Return values by the matches of spatial neighbors: i takes j = j' - (i' - i).

    Aggregation (equation 10) is one softmax over the p^2 k scores of the pairs (i', j'), i' in the
    patch around i. A neighbor i' outside the map is ignored; a position j outside the key map is
    clamped to its border; a j that ``key_mask`` excludes is ignored. If nothing is left the output
    is 0.

    Args:
        logits: (B, k, H, W), from ``match_logits``.
        index: (B, k, H, W), y * Wk + x of j', negative for an empty entry.
        value: (B, Cv, Hk, Wk).
        patch_size: Side p of the neighborhood, odd.
        key_mask: Broadcastable to (B, 1, Hk, Wk), above 0 where a key may be used, or None.

    Returns:
        (B, Cv, H, W).
    """
    inputs = aggregation_inputs(logits, index, value, patch_size, key_mask)
    return divide_by_weight(sum_weighted(*inputs, patch_size))


def aggregation_inputs(
    logits: Tensor, index: Tensor, value: Tensor, patch_size: int, key_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return logits, places, [value, share] rows with their rim, and the largest logits.

    Arguments as for ``aggregate_values``; the largest logits carry no gradient.
    """
    radius = patch_size // 2
    share = value.new_ones(1, 1, 1, 1) if key_mask is None else (key_mask > 0).to(value.dtype)
    share = share.expand(value.shape[0], 1, *value.shape[2:])
    shared = torch.cat((value * share, share), 1)
    if radius:
        shared = F.pad(shared, (radius,) * 4, mode="replicate")
    padded = shared.permute(0, 2, 3, 1)
    place = _place_in_padded(index, value.shape[3], padded)
    border = (radius,) * 4
    outer_logits = F.pad(logits, border, value=lowest(logits.dtype))
    outer_place = F.pad(place, border)
    reference = _reference(outer_logits, outer_place, padded, patch_size, key_mask is not None)
    return outer_logits, outer_place, padded, reference.detach()


def divide_by_weight(total: Tensor) -> Tensor:
    """Return the values (B, Cv, H, W) of sums (B, H, W, Cv + 1) whose last channel is the weight.

    0 where nothing has weight.
    """
    weight = total[..., -1:]
    out = total[..., :-1] / weight.clamp(min=torch.finfo(weight.dtype).tiny)
    return out.permute(0, 3, 1, 2)


def take_rows(rows: Tensor, place: Tensor) -> Tensor:
    """Return the rows (N, C) at every place (...), as (..., C)."""
    return rows.index_select(0, place.reshape(-1)).view(*place.shape, rows.shape[-1])


def batch_offset(index: Tensor, size: int) -> Tensor:
    """Return b * size as (B, 1, 1, 1): where the maps of a batch start once flattened."""
    return (torch.arange(index.shape[0], device=index.device) * size).view(-1, 1, 1, 1)


def lowest(dtype: torch.dtype) -> float:
    """Return the logit of an empty entry: finite, so that differences stay so."""
    return torch.finfo(dtype).min / 4


def _place_in_padded(index: Tensor, width: int, padded: Tensor) -> Tensor:
    """Return the place of the corner of each matched patch in the flattened padded maps."""
    used = index.clamp(min=0).long()
    row = torch.div(used, width, rounding_mode="trunc")
    column = used - row * width
    _, rows, columns, _ = padded.shape
    return row * columns + column + batch_offset(index, rows * columns)


def neighbors(
    logits: Tensor, place: Tensor, padded: Tensor, patch: int
) -> Iterator[tuple[Tensor, Tensor, int, int]]:
    """Yield the logits and value places of one neighbor of every pixel, over the patch.

    Neighbor (a, b), counted from the patch's corner, lies at i + (a - r, b - r); its match
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
    """Return the largest logit (B, 1, H, W) among the entries in use."""
    floor = lowest(logits.dtype) / 2
    if not masked:
        best = logits.amax(1, keepdim=True)
        return F.max_pool2d(best, patch, stride=1).clamp(min=floor)
    shares = padded[..., -1:].reshape(-1, 1)
    top: Tensor | None = None
    for part, where, _, _ in neighbors(logits, place, padded, patch):
        usable = take_rows(shares, where).squeeze(-1) > 0
        best = torch.where(usable, part, lowest(logits.dtype)).amax(1, keepdim=True)
        top = best if top is None else torch.maximum(top, best)
    if top is None:
        raise ValueError(f"a patch of side {patch}: expected an odd number of 1 or more")
    return top.clamp(min=floor)


def sum_weighted(
    logits: Tensor, place: Tensor, padded: Tensor, reference: Tensor, patch: int
) -> Tensor:
    """Return the sums (B, H, W, Cv + 1) of exp(logit - reference) times [value, share]."""
    rows = padded.reshape(-1, padded.shape[-1])
    total: Tensor | None = None
    for part, where, _, _ in neighbors(logits, place, padded, patch):
        weights = (part - reference).clamp(max=0.0).exp().unsqueeze(-1)
        added = (take_rows(rows, where) * weights).sum(1)
        total = added if total is None else total + added
    if total is None:
        raise ValueError(f"a patch of side {patch}: expected an odd number of 1 or more")
    return total
