"""PSAL at a patch site: search, weigh, and paste the value patches."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ....models.geometry import PatchGeometry
from ....models.layers.patches import join_blocks, shrink_nearest, usable_keys, value_blocks
from ....models.psal.search import PsalOptions, Search, matches, patch_squares
from ....models.psal.values import (
    aggregate_values,
    batch_offset,
    match_logits,
    match_weights,
    mix_rows,
)
from ....plugins.operators.patch_match.torch_op import patch_match
from ..implementation import Form, in_form
from .parameters import Psal


def attend_patches(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    geometry: PatchGeometry,
    mechanism: Psal,
    form: Form,
) -> Tensor:
    """Return PSAL between patches; shapes as in ``models.sites.PatchSite``."""
    geometry = plan_geometry(geometry, mechanism)
    query = shrink_nearest(query, geometry.shrink)
    key = shrink_nearest(key, geometry.shrink)
    usable = None if key_mask is None else usable_keys(key_mask, geometry)
    options = PsalOptions(
        neighbors=1 if geometry.hard else mechanism.neighbors,
        patch_size=geometry.patch,
        iterations=mechanism.search_iterations,
        metric=_metric(geometry, mechanism),
        temperature=mechanism.temperature / geometry.scale,
        seed=mechanism.seed,
    )
    search = in_form(patch_match, form)
    index, score = _matches(query, key, usable, geometry, options, search)
    if options.metric == "cosine" and mechanism.metric == "site":
        score = score * _query_norm(query, geometry)
    logits = match_logits(index, score, options.temperature)
    blocks = value_blocks(value, geometry)
    if mechanism.aggregate and geometry.reach == 1:
        pasted = aggregate_values(logits, index, blocks, geometry.patch, usable)
    else:
        weights = match_weights(logits, index)
        pasted = _votes(weights, index, blocks, geometry.reach)
    return join_blocks(pasted, geometry)


def plan_geometry(geometry: PatchGeometry, mechanism: Psal) -> PatchGeometry:
    """Return the patch geometry of a site: its own, or that of the plan."""
    patch = mechanism.patch_size or geometry.patch
    if mechanism.full_size and geometry.shrink == geometry.value_stride:
        return replace(
            geometry,
            patch=patch,
            shrink=1,
            fuse=0,
            value_patch=1,
            value_stride=1,
            divisor=1.0,
        )
    return replace(geometry, patch=patch)


def _metric(geometry: PatchGeometry, mechanism: Psal) -> str:
    """Return the metric of the search.

    A dot product with normalized keys is the cosine times the norm of the query, which ranks keys
    as the cosine does.
    """
    if mechanism.metric != "site":
        return mechanism.metric
    if geometry.metric == "dot" and geometry.key_norm != "none":
        return "cosine"
    return geometry.metric


def _matches(
    query: Tensor,
    key: Tensor,
    usable: Tensor | None,
    geometry: PatchGeometry,
    options: PsalOptions,
    search: Search,
) -> tuple[Tensor, Tensor]:
    """Return index and score of the matches with the site's border.

    The search repeats the border. If the site pads with zeros, both maps get a border of zeros that
    neither searches nor may be matched. The key norm ``ridge`` adds epsilon to every squared entry:
    one more channel, 0 in the query and sqrt(C epsilon) in the key, does that.
    """
    radius = 0
    if geometry.border == "zero":
        radius = geometry.patch // 2
    channels = query.shape[1]
    height, width = query.shape[2], query.shape[3]
    rim = (radius,) * 4
    usable_keys = usable
    if radius:
        query = F.pad(query, rim)
        key = F.pad(key, rim)
        real = slice(radius, -radius)
        inside = torch.ones_like(key[:1, :1, real, real])
        usable_keys = F.pad(inside if usable is None else usable, rim)
    if geometry.key_norm == "ridge" and options.metric == "cosine":
        ridge = (channels * geometry.key_epsilon) ** 0.5
        zeros = torch.zeros_like(query[:, :1])
        query = torch.cat((query, zeros), 1)
        ridges = torch.full_like(key[:, :1], ridge)
        key = torch.cat((key, ridges), 1)
    if not radius:
        return matches(query, key, options, usable_keys, search=search)
    inside = query.new_ones(1, 1, height, width)
    searching = F.pad(inside, rim)
    index, score = matches(query, key, options, usable_keys, searching, search=search)
    index = index[:, :, radius : radius + height, radius : radius + width]
    score = score[:, :, radius : radius + height, radius : radius + width]
    used = index.clamp(min=0)
    row = torch.div(used, key.shape[3], rounding_mode="trunc")
    across = key.shape[3] - 2 * radius
    above = (row - radius) * across
    column = used - row * key.shape[3]
    moved = above + column - radius
    return torch.where(index < 0, -1, moved), score


def _query_norm(query: Tensor, geometry: PatchGeometry) -> Tensor:
    """Return the norm (B, 1, H, W) of the patch around each query."""
    radius = 0
    if geometry.border == "zero":
        radius = geometry.patch // 2
    if not radius:
        return patch_squares(query, geometry.patch).sqrt()
    height = query.shape[2]
    width = query.shape[3]
    border = (radius,) * 4
    squares = patch_squares(F.pad(query, border), geometry.patch)
    rows = slice(radius, radius + height)
    columns = slice(radius, radius + width)
    return squares[:, :, rows, columns].sqrt()


def _votes(
    weights: Tensor,
    index: Tensor,
    blocks: Tensor,
    reach: int,
) -> Tensor:
    """Return the sum of the votes (B, C, H + reach - 1, W + reach - 1) of the matched patches."""
    rows = blocks.permute(0, 2, 3, 1).flatten(0, 2)
    across = blocks.shape[3]
    used = index.clamp(min=0).long()
    key_width = across - reach + 1
    row = torch.div(used, key_width, rounding_mode="trunc")
    corner = used + row * (reach - 1)
    corner = corner + batch_offset(index, blocks.shape[2] * across)
    total: Tensor | None = None
    for down in range(reach):
        for right in range(reach):
            place = corner + (down * across + right)
            votes = mix_rows(weights, place, rows)
            votes = votes.permute(0, 3, 1, 2)
            border = (right, reach - 1 - right, down, reach - 1 - down)
            votes = F.pad(votes, border)
            total = votes if total is None else total + votes
    if total is None:
        raise ValueError(f"the value patch covers {reach} strides: expected 1 or more")
    return total
