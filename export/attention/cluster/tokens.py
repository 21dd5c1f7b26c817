"""Clustered keys between lists of tokens, whatever their grids and their number."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ....models.geometry import TokenGeometry
from ....plugins.operators.attention_torch import softmax_attention
from ....plugins.operators.cluster_torch import (
    Blocks,
    attend_clusters,
    center_keys,
    key_clusters,
    sum_members,
)
from ....plugins.operators.window_cluster.schema import cluster_seeds
from .parameters import Cluster, block_sides, fit_clusters, flat_grid


def attend_tokens(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    geometry: TokenGeometry,
    mechanism: Cluster,
) -> Tensor:
    """Return the attention of tokens; shapes as in ``models.sites.TokenSite``.

    Tokens before those of the grid (a class token) attend exactly, and are attended to exactly.
    Frames of a grid are stacked vertically. On a line, clusters and blocks have as many tokens as
    elsewhere. The own block of a block of queries is the block of
    keys in the same part of their grid; if the keys extend beyond the queries, it has the keys at
    the same positions, and at the border those beyond it too.

    A bias is given for each pair: outside of the own block its exp is averaged over blocks.
    """
    clusters, block = mechanism.sizes()
    query_grid = flat_grid(geometry.query_grid)
    key_grid = flat_grid(geometry.key_grid)
    before = _before(q.shape[2], query_grid)
    key_before = _before(k.shape[2], key_grid)
    if before is None or key_before is None:
        query_grid = (1, q.shape[2])
        key_grid = (1, k.shape[2])
        before = key_before = 0
    clusters = fit_clusters(clusters, key_grid)
    first = []
    if before:
        own_bias = bias
        if bias is not None and bias.shape[2] != 1:
            own_bias = bias[:, :, :before]
        own_q = q[:, :, :before]
        first = [softmax_attention(own_q, k, v, geometry.scale, own_bias)]

    mean_k = k[:, :, key_before:].mean(-2, keepdim=True)
    k = k - mean_k
    grid_k = k[:, :, key_before:]
    grid_v = v[:, :, key_before:]
    seeds = [
        row * key_grid[1] + column
        for row in cluster_seeds(key_grid[0], clusters[0])
        for column in cluster_seeds(key_grid[1], clusters[1])
    ]
    members, centers = key_clusters(
        grid_k, torch.tensor(seeds, device=k.device), mechanism.rounds or 0
    )
    steps = zip(query_grid, block_sides(block, query_grid, key_grid), strict=True)
    bounds = [[*range(0, size, step), size] for size, step in steps]
    queries = Blocks.of(bounds, q.device)
    margins = geometry.margin or (None, None)
    key_bounds = list(map(_key_bounds, bounds, key_grid, margins))
    keys = Blocks.of(key_bounds, q.device)
    own_q = queries.cut(q[:, :, before:] * geometry.scale)
    own_k = keys.cut(grid_k)
    own_v = keys.cut(grid_v)
    centered = keys.cut(center_keys(grid_k, members, centers)) if mechanism.order else None
    real_members = keys.cut(members) * keys.real.unsqueeze(-1)
    sums = sum_members(real_members, own_v, centered)
    own_logits = own_q @ own_k.mT
    exact_k = k[:, :, :key_before].unsqueeze(2)
    exact_v = v[:, :, :key_before].unsqueeze(2)
    exact = own_q @ exact_k.mT
    if bias is None:
        seen = sums.sum(2, keepdim=True) - sums
    else:
        pairs = bias.expand(*bias.shape[:2], q.shape[2], k.shape[2])
        pairs = pairs[:, :, before:]
        pairs = pairs - pairs.amax((2, 3), keepdim=True)
        seen = _sum_seen(pairs[..., key_before:], sums, queries, keys)
        own_logits = own_logits + _own(pairs[..., key_before:], queries, keys)
        exact = exact + queries.cut(pairs[..., :key_before])
    beyond = ~keys.real.unsqueeze(-2)
    own_logits = own_logits.masked_fill(beyond, -torch.inf)
    own_logits = torch.cat([exact, own_logits], -1)
    blocks = own_v.shape[2]
    every_exact_v = exact_v.expand(-1, -1, blocks, -1, -1)
    values = torch.cat([every_exact_v, own_v], -2)
    centers = centers.unsqueeze(2)
    out = attend_clusters(own_q, centers, seen, own_logits, values, v.unsqueeze(2))
    return torch.cat([*first, queries.join(out)], 2)


def _key_bounds(bounds: list[int], size: int, margin: int | None) -> list[int]:
    if margin is None:
        return [bound * size // bounds[-1] for bound in bounds]
    return [0, *(margin + bound for bound in bounds[1:-1]), size]


def _before(count: int, grid: tuple[int, int]) -> int | None:
    more = count - math.prod(grid)
    if more < 0:
        return None
    return more


def _own(bias: Tensor, queries: Blocks, keys: Blocks) -> Tensor:
    """Return the bias (B, h, blocks, places, places of keys) of each block with its own."""
    rows = queries.cut(bias)  # (B, h, blocks, places, Nk)
    used = keys.tokens.unsqueeze(1)
    used = used.expand(-1, rows.shape[3], -1)
    places = used.expand(*rows.shape[:2], *used.shape)
    return rows.gather(-1, places)


def _sum_seen(
    bias: Tensor,
    sums: Tensor,
    queries: Blocks,
    keys: Blocks,
) -> Tensor:
    """Return the part of every cluster in other blocks, for each block of queries.

    Args:
        bias: Bias of each pair, at most 0, (B, h, N, Nk).
        sums: Values of a cluster's members in each block, and their number,
            (B, h, blocks, m, e + 1).
        queries: Their blocks.
        keys: Theirs, as many.
    """
    rows = _make_averaging(queries, bias)
    columns = _make_averaging(keys, bias)
    mean = rows @ bias.exp() @ columns.mT
    own_block = torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
    other_blocks = mean * (1 - own_block)
    total = other_blocks @ sums.flatten(-2)
    seen: Tensor = total.unflatten(-1, sums.shape[-2:])
    return seen


def _make_averaging(blocks: Blocks, like: Tensor) -> Tensor:
    """Return the matrix (blocks, N) that averages over the tokens of each block."""
    inside = blocks.real.to(like.dtype)
    matrix = like.new_zeros(len(inside), len(blocks.back))
    matrix = matrix.scatter_add(1, blocks.tokens, inside)
    counts = inside.sum(1, keepdim=True)
    out: Tensor = matrix / counts.clamp(min=1)
    return out
