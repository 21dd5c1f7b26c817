"""Clustered keys between tokens of any number: a map of any size, or a line, and what is before."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ....models.geometry import TokenGeometry
from ....plugins.operators.attention_torch import softmax_attention
from ....plugins.operators.cluster_torch import (
    attend_clusters,
    center_keys,
    key_clusters,
    sum_members,
)
from .parameters import LARGEST, Cluster


def attend_free(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    geometry: TokenGeometry,
    mechanism: Cluster,
) -> Tensor:
    """Return the attention of tokens; shapes as in ``models.sites.TokenSite``, grids are free.

    Tokens before those of the grid attend exactly, and are attended to exactly. The map is cut into
    blocks, the last of which extend beyond it by places without weight; on a line, clusters and
    blocks have as many tokens. Keys at other places than the queries are in clusters only.
    """
    (rows, columns), block = mechanism.sizes(LARGEST)
    before, key_before = geometry.tokens_before(q.shape[2], k.shape[2])
    height, width = geometry.key_grid
    along = block, block
    if type(height) is int and height == 1:  # of a line all are along it
        rows, columns, along = 1, rows * columns, (1, block**2)
    first = None
    if before:
        first_q = q[:, :, :before]
        first = softmax_attention(first_q, k, v, geometry.scale)
    mean = k[:, :, key_before:].mean(2, keepdim=True)
    k = k - mean
    own = q[:, :, before:] * geometry.scale
    keys = k[:, :, key_before:]
    values = v[:, :, key_before:]
    seed_rows = _seeds(height, rows, k.device)
    seed_columns = _seeds(width, columns, k.device)
    seeds = (seed_rows.unsqueeze(1) * width + seed_columns).flatten()
    repeated = _repeated(seed_rows).unsqueeze(1) | _repeated(seed_columns)
    members, centers = key_clusters(keys, seeds, mechanism.rounds or 0, repeated.flatten())
    centered = center_keys(keys, members, centers) if mechanism.order else None
    if geometry.separate:
        seen = sum_members(members, values, centered)
        out = attend_clusters(own, centers, seen, None, None, values)
        if first is None:
            return out
        return torch.cat([first, out], 2)

    def cut(part: Tensor) -> Tensor:
        return _cut(part, height, width, along)

    ones = torch.ones_like(keys[:1, :1, :, :1])
    inside = cut(ones)  # (1, 1, blocks, places, 1)
    own_q = cut(own)
    own_k = cut(keys)
    own_v = cut(values)
    own_centered = None if centered is None else cut(centered)
    sums = sum_members(cut(members), own_v, own_centered)  # (B, h, blocks, m, e + 1 or more)
    seen = sums.sum(2, keepdim=True) - sums
    own_logits = own_q @ own_k.mT + inside.mT.log()
    if key_before:
        exact = own_q @ k[:, :, :key_before].unsqueeze(2).mT
        own_logits = torch.cat([exact, own_logits], -1)
        exact_v = v[:, :, :key_before].unsqueeze(2)
        blocks = own_v.shape[2]
        every_exact_v = exact_v.expand(-1, -1, blocks, -1, -1)
        own_v = torch.cat([every_exact_v, own_v], 3)
    centers = centers.unsqueeze(2)
    out = attend_clusters(own_q, centers, seen, own_logits, own_v, v.unsqueeze(2))
    out = _grid(out, height, width, along)
    if first is None:
        return out
    return torch.cat([first, out], 2)


def _seeds(side: int, parts: int, device: torch.device) -> Tensor:
    """Return `cluster_seeds` of a side that may be free."""
    middles = 2 * torch.arange(parts, device=device) + 1
    return middles * side // (2 * parts)


def _repeated(seeds: Tensor) -> Tensor:
    """Return where a seed is the one before it, as where a map has fewer places than clusters."""
    return F.pad(seeds[1:] == seeds[:-1], (1, 0))


def _cut(
    part: Tensor,
    height: int,
    width: int,
    sides: tuple[int, int],
) -> Tensor:
    """Return the blocks (B, h, blocks, places, C) of a grid (B, h, N, C), padded by 0."""
    rows, columns = sides
    beyond = (0, 0, 0, -width % columns, 0, -height % rows)
    grid = part.unflatten(2, (height, width))
    padded = F.pad(grid, beyond)
    cells = padded.unflatten(3, (-1, columns))
    cells = cells.unflatten(2, (-1, rows))
    cells = cells.transpose(3, 4)
    blocks: Tensor = cells.flatten(4, 5).flatten(2, 3)
    return blocks


def _grid(
    blocks: Tensor,
    height: int,
    width: int,
    sides: tuple[int, int],
) -> Tensor:
    """Return the grid (B, h, N, C) of blocks (B, h, blocks, places, C)."""
    columns = (width + sides[1] - 1) // sides[1]
    cells = blocks.unflatten(3, sides)
    cells = cells.unflatten(2, (-1, columns))
    cells = cells.transpose(3, 4)
    padded = cells.flatten(4, 5).flatten(2, 3)
    inside = padded[:, :, :height, :width]
    grid: Tensor = inside.flatten(2, 3)
    return grid
