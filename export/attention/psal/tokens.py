"""PSAL between tokens: the k nearest keys of a window, or of a grid, by the dot product."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ....models.geometry import TokenGeometry, WindowGeometry
from ....models.psal.search import PsalOptions, matches
from ....models.psal.values import batch_offset, match_logits, match_weights, mix_rows
from ....plugins.operators.patch_match.torch_op import patch_match
from ....plugins.operators.windows_torch import merge, partition, token_regions
from ..implementation import Form, in_form
from .parameters import Psal

_SEPARATION = 100.0
"""Logits subtracted for tokens of another region, as in the published networks."""


def attend_tokens(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    geometry: TokenGeometry,
    mechanism: Psal,
    form: Form,
) -> Tensor:
    """Return PSAL of tokens; shapes as in ``models.sites.TokenSite``.

    Tokens that do not fill their grid (a class token before them) are searched as one row.
    """
    batch, heads, count, _ = q.shape
    index, score = _nearest(
        q.flatten(0, 1),
        k.flatten(0, 1),
        _grid(geometry.query_grid, count),
        _grid(geometry.key_grid, k.shape[2]),
        mechanism,
        form,
    )
    logits = score * geometry.scale
    if bias is not None:
        every = bias.expand(batch, heads, count, k.shape[2])
        every = every.flatten(0, 1)
        used = index.clamp(min=0).long().transpose(1, 2)
        logits = logits + every.gather(2, used).transpose(1, 2)
    out: Tensor = _weigh(index, logits, v.flatten(0, 1), mechanism)
    return out.view(batch, heads, count, -1)


def attend_windows(
    qkv: Tensor,
    bias_table: Tensor | None,
    geometry: WindowGeometry,
    mask: int,
    mechanism: Psal,
    form: Form,
) -> Tensor:
    """Return PSAL in windows; shapes as in ``models.sites.WindowSite``.

    With ``mask`` 1, four more channels, one for each region, put tokens of the same region 100
    logits ahead. The position bias is added to the logits of the tokens that were found.
    """
    batch, height, width, _ = qkv.shape
    q, k, v = partition(qkv, geometry)
    if mask:
        regions = token_regions((height, width), geometry, qkv.device)
        kinds = torch.arange(4, device=qkv.device)
        ahead = (regions.unsqueeze(-1) == kinds).to(qkv.dtype) * (
            _SEPARATION / geometry.scale
        ) ** 0.5
        ahead = ahead.unsqueeze(1)
        ahead = ahead.expand(*q.shape[:-1], 4)
        q = torch.cat((q, ahead), -1)
        k = torch.cat((k, ahead), -1)
    flat_q = q.flatten(0, 2)
    flat_k = k.flatten(0, 2)
    window = geometry.window
    index, score = _nearest(flat_q, flat_k, window, window, mechanism, form)
    logits = score * geometry.scale
    if bias_table is not None:
        table = bias_table.to(qkv.dtype)
        logits = logits + _position_bias(index, table, geometry)
    out = _weigh(index, logits, v.flatten(0, 2), mechanism)
    windows = out.view(*v.shape)
    out = merge(windows, (height, width), geometry)
    return out.view(batch, height, width, -1)


def _grid(grid: tuple[int, ...], count: int) -> tuple[int, ...]:
    if math.prod(grid) == count:
        return grid
    return (1, count)


def _nearest(
    q: Tensor,
    k: Tensor,
    query_grid: tuple[int, ...],
    key_grid: tuple[int, ...],
    mechanism: Psal,
    form: Form,
) -> tuple[Tensor, Tensor]:
    """Return index and score (B, neighbors, N) of the nearest of k (B, Nk, d) to q (B, N, d)."""
    options = PsalOptions(
        neighbors=mechanism.neighbors,
        patch_size=1,
        iterations=mechanism.search_iterations,
        metric="dot",
        seed=mechanism.seed,
    )
    query = q.transpose(1, 2).unflatten(2, query_grid)
    key = k.transpose(1, 2).unflatten(2, key_grid)
    search = in_form(patch_match, form)
    index, score = matches(query, key, options, search=search)
    return index.flatten(2), score.flatten(2)


def _position_bias(index: Tensor, table: Tensor, geometry: WindowGeometry) -> Tensor:
    """Return the bias (B, neighbors, N) of each query and the token it found.

    Args:
        index: (B, neighbors, N), B counting heads fastest.
        table: ((2 wh - 1)(2 ww - 1), heads).
        geometry: Geometry of the site.
    """
    rows, columns = geometry.window
    own = torch.arange(rows * columns, device=index.device)
    used = index.clamp(min=0).long()
    row = torch.div(used, columns, rounding_mode="trunc")
    down = own // columns - row + rows - 1
    right = own % columns - (used - row * columns) + columns - 1
    entry = down * (2 * columns - 1) + right
    by_head = entry.unflatten(0, (-1, geometry.heads))
    heads = torch.arange(geometry.heads, device=index.device)
    start = heads * table.shape[0]
    place = by_head + start.view(1, -1, 1, 1)
    entries = table.t().reshape(-1)
    return entries[place].flatten(0, 1)


def _weigh(
    index: Tensor,
    logits: Tensor,
    v: Tensor,
    mechanism: Psal,
) -> Tensor:
    """Return the weighted values (B, N, e) of the found tokens; v is (B, Nk, e)."""
    index = index.unsqueeze(2)
    logits = logits.unsqueeze(2)
    weights = match_weights(match_logits(index, logits, mechanism.temperature), index)
    first = batch_offset(index, v.shape[1])
    place = index.clamp(min=0).long() + first
    mixed = mix_rows(weights, place, v.flatten(0, 1))
    return mixed.squeeze(1)
