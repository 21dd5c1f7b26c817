"""Attention with clustered keys in torch: the common part of windows and token lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

_TINY = 1e-30  # the least count that a cluster is divided by


@dataclass(frozen=True)
class Blocks:
    """A grid of tokens cut into blocks; smaller blocks are padded to the size of the largest.

    Attributes:
        sides: Rows and columns of the largest block.
        tokens: The grid's token at each position of each block, row by row, (blocks, places).
        real: Whether it is a token and not padding, (blocks, places).
        back: Index of each token of the grid among all positions, (N,).
    """

    sides: tuple[int, int]
    tokens: Tensor
    real: Tensor
    back: Tensor

    @classmethod
    def of(cls, bounds: Sequence[Sequence[int]], device: torch.device) -> Blocks:
        """Return the blocks between bounds: for rows and for columns from 0 to the grid's size."""
        (y, real_y), (x, real_x) = (_cut(list(axis), device) for axis in bounds)
        size = bounds[1][-1]
        tokens = y[:, None, :, None] * size + x[None, :, None, :]
        real = real_y[:, None, :, None] & real_x[None, :, None, :]
        shape = len(y) * len(x), y.shape[1] * x.shape[1]
        tokens, real = tokens.reshape(shape), real.reshape(shape)
        back = torch.empty(bounds[0][-1] * size, dtype=torch.int64, device=device)
        back[tokens[real]] = real.flatten().nonzero()[:, 0]
        return cls((y.shape[1], x.shape[1]), tokens, real, back)

    def cut(self, tokens: Tensor) -> Tensor:
        """Return (..., blocks, places, c) of tokens (..., N, c)."""
        rows = tokens.index_select(-2, self.tokens.flatten())
        out: Tensor = rows.unflatten(-2, self.tokens.shape)
        return out

    def join(self, blocks: Tensor) -> Tensor:
        """Return (..., N, c) of (..., blocks, places, c)."""
        return blocks.flatten(-3, -2).index_select(-2, self.back)


def _cut(bounds: list[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the positions (blocks, length) between bounds, and which are not padding."""
    starts, ends = torch.tensor(bounds[:-1], device=device), torch.tensor(bounds[1:], device=device)
    longest = max(1, *(b - a for a, b in pairwise(bounds)))
    places = starts[:, None] + torch.arange(longest, device=device)
    return places.clamp(max=bounds[-1] - 1), places < ends[:, None]


def key_clusters(
    k: Tensor, seeds: Tensor, rounds: int, repeated: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return members (..., N, m), 1 where a key is in a cluster, and centers (..., m, d).

    Args:
        k: Keys (..., N, d), their mean taken away: near ties are decided by rounding.
        seeds: Indices of the keys where the centers start, (m,).
        rounds: Rounds after the first. In each round every key is assigned to the nearest center,
            and every center moves to the mean of its members; without members it stays.
        repeated: True where a seed is that of an earlier center, which has its members, (m,).
    """
    centers = k[..., seeds, :]
    for _ in range(rounds + 1):
        halves = 0.5 * centers.square().sum(-1)
        if repeated is not None:
            halves = halves.masked_fill(repeated, torch.inf)
        nearness = k @ centers.mT - halves.unsqueeze(-2)
        nearest = nearness.detach().argmax(-1, keepdim=True)
        members = (nearest == torch.arange(len(seeds), device=k.device)).to(k.dtype)
        counts = members.sum(-2).unsqueeze(-1)
        centers = torch.where(counts > 0, members.mT @ k / counts.clamp(min=1), centers)
    return members, centers


def center_keys(k: Tensor, members: Tensor, centers: Tensor) -> Tensor:
    """Return keys (..., N, d) relative to the centers of their clusters, as of `key_clusters`."""
    return k - members @ centers


def sum_members(members: Tensor, v: Tensor, k: Tensor | None) -> Tensor:
    """Return what `attend_clusters` needs to know of the members of each cluster.

    Args:
        members: 1 where a key is in a cluster, (..., n, m).
        v: Values of the keys, (..., n, e).
        k: Of order 1, keys relative to their centers, (..., n, d), from `center_keys`.

    Returns:
        (..., m, e + 1): sums of the values, and counts; of order 1 (..., m, e + 1 + d + d e): also
        sums of the keys, and of their products with the values.
    """
    parts = [v, torch.ones_like(v[..., :1])]
    if k is None:
        return members.mT @ torch.cat(parts, -1)
    sums = members.mT @ torch.cat([*parts, k], -1)
    marked = (members.unsqueeze(-1) * k.unsqueeze(-2)).flatten(-2)
    products = (marked.mT @ v).unflatten(-2, (members.shape[-1], -1))
    return torch.cat([sums, products.flatten(-2)], -1)


def attend_clusters(
    q: Tensor,
    centers: Tensor,
    seen: Tensor,
    own_logits: Tensor | None,
    v: Tensor | None,
    all_v: Tensor,
) -> Tensor:
    """Return attention (..., n, e) to clusters, and to tokens.

    Args:
        q: Queries (..., n, d), scaled.
        centers: Centers of the clusters, (..., m, d).
        seen: Weighted sums over their members, (..., m, c), as of `sum_members`.
        own_logits: Logits of the queries with the tokens, (..., n, j); None: there are none.
        v: Values of the tokens, (..., j, e).
        all_v: Values (..., N, e); their range limits the result of order 1.
    """
    d, e = q.shape[-1], all_v.shape[-1]
    if seen.shape[-1] == e + 1:
        return attend(q, centers, seen[..., -1], seen[..., :-1], own_logits, v)
    sums, counts, keys, products = seen.split((e, 1, d, d * e), -1)
    none = counts <= 0
    weights = torch.where(none, counts.new_ones(()), counts).clamp(min=_TINY)
    means, keys = sums / weights, keys / weights
    tilts = (products / weights).unflatten(-1, (d, e)) - keys.unsqueeze(-1) * means.unsqueeze(-2)
    logits = q @ (centers + keys).mT + weights.log().masked_fill(none, -torch.inf).mT
    m = counts.shape[-2]
    if own_logits is None or v is None:
        share = logits.softmax(-1)
        out = share @ means
    else:
        share = torch.cat([logits, own_logits], -1).softmax(-1)
        out = share[..., :m] @ means + share[..., m:] @ v
    out = out + (share[..., :m].unsqueeze(-1) * q.unsqueeze(-2)).flatten(-2) @ tilts.flatten(-3, -2)
    lowest, highest = all_v.amin(-2, keepdim=True), all_v.amax(-2, keepdim=True)
    return torch.minimum(torch.maximum(out, lowest), highest)


def attend(
    q: Tensor,
    centers: Tensor,
    counts: Tensor,
    sums: Tensor,
    own_logits: Tensor | None = None,
    v: Tensor | None = None,
) -> Tensor:
    """Return attention (..., n, e) to clusters, each a key with a count, and to tokens.

    Args:
        q: Queries (..., n, d), scaled.
        centers: Centers of the clusters, (..., m, d).
        counts: Count of each cluster, (..., m); 0: ignored.
        sums: Sums of the values of its members, weighted by their counts, (..., m, e).
        own_logits: Logits of the queries with the tokens, (..., n, j); None: there are none.
        v: Values of the tokens, (..., j, e).
    """
    none = counts <= 0
    weights = torch.where(none, counts.new_ones(()), counts).clamp(min=_TINY)
    far = q @ centers.mT + weights.log().masked_fill(none, -torch.inf).unsqueeze(-2)
    means = sums / weights.unsqueeze(-1)
    if own_logits is None or v is None:
        alone: Tensor = far.softmax(-1) @ means
        return alone
    share = torch.cat([far.expand(*own_logits.shape[:-1], -1), own_logits], -1).softmax(-1)
    split = share.split((counts.shape[-1], own_logits.shape[-1]), -1)
    out: Tensor = split[0] @ means + split[1] @ v
    return out
