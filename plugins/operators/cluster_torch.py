"""Attention with clustered keys in torch: what windows and lists of tokens have in common."""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = 1e-30  # the least count that a cluster is divided by


def key_clusters(k: Tensor, seeds: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Return members (..., N, m), 1 where a key is in a cluster, and centres (..., m, d).

    Args:
        k: Keys (..., N, d), their mean taken away: near ties are decided by rounding.
        seeds: Which keys the centres start at, (m,).
        rounds: Rounds beside the first. In each every key goes to the nearest centre, and every
            centre to the mean of its members; without members it stays.
    """
    centres = k[..., seeds, :]
    for _ in range(rounds + 1):
        nearness = k @ centres.mT - 0.5 * centres.square().sum(-1).unsqueeze(-2)
        nearest = nearness.detach().argmax(-1, keepdim=True)
        members = (nearest == torch.arange(len(seeds), device=k.device)).to(k.dtype)
        counts = members.sum(-2).unsqueeze(-1)
        centres = torch.where(counts > 0, members.mT @ k / counts.clamp(min=1), centres)
    return members, centres


def attend(
    q: Tensor, centres: Tensor, counts: Tensor, sums: Tensor, near: Tensor, v: Tensor
) -> Tensor:
    """Return attention (..., n, e) to clusters, each one key that counts as many, and to tokens.

    Args:
        q: Queries (..., n, d), scaled.
        centres: Of the clusters, (..., m, d).
        counts: How often each is seen, (..., m); at 0 it is not.
        sums: Of the values of its members, as often as they are seen, (..., m, e).
        near: Logits of the queries with the tokens, (..., n, j).
        v: Values of the tokens, (..., j, e).
    """
    none = counts <= 0
    weights = torch.where(none, torch.ones_like(counts), counts).clamp(min=_TINY)
    far = q @ centres.mT + weights.log().masked_fill(none, -torch.inf).unsqueeze(-2)
    share = torch.cat([far.expand(*near.shape[:-1], -1), near], -1).softmax(-1)
    split = share.split((counts.shape[-1], near.shape[-1]), -1)
    out: Tensor = split[0] @ (sums / weights.unsqueeze(-1)) + split[1] @ v
    return out
