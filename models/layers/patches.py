"""Exact attention between patches of maps, from standard tensor operations that export cleanly.

Maps are (B, C, H, W). Patches are never cut out by ``unfold``: shifted copies of the padded map
give the same numbers, and a graph of slices takes every size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..geometry import PatchGeometry


def neighborhoods(image: Tensor, side: int, border: str = "zero") -> Tensor:
    """Return the patch around every pixel of a map.

    Args:
        image: (B, C, H, W).
        side: Side of the patches, odd.
        border: Values outside the map: ``zero``, or ``replicate`` for its edge.

    Returns:
        (B, C * side * side, H, W), channels in the order (channel, row, column).
    """
    if side == 1:
        return image
    height, width, radius = image.shape[2], image.shape[3], side // 2
    mode = "constant" if border == "zero" else "replicate"
    padded = F.pad(image, (radius, radius, radius, radius), mode=mode)
    rows = torch.stack([padded[:, :, row : row + height] for row in range(side)], 2).flatten(1, 2)
    columns = [rows[:, :, :, column : column + width] for column in range(side)]
    return torch.stack(columns, 2).flatten(1, 2)


def shrink_nearest(image: Tensor, factor: int) -> Tensor:
    """Return every ``factor``-th row and column, from the first one on."""
    return image if factor == 1 else image[:, :, ::factor, ::factor]


def patch_scores(query: Tensor, key: Tensor, geometry: PatchGeometry) -> Tensor:
    """Return the scores of the patches, before masks, fusing and the scale.

    Args:
        query: (B, C, H, W), already shrunk.
        key: (B, C, Hk, Wk), already shrunk.
        geometry: Geometry of the site.

    Returns:
        (B, H * W, Hk * Wk), higher is better.
    """
    q = neighborhoods(query, geometry.patch, geometry.border).flatten(2).transpose(1, 2)
    k = neighborhoods(key, geometry.patch, geometry.border).flatten(2)
    if geometry.metric == "l2":
        return 2.0 * (q @ k) - q.square().sum(2, keepdim=True) - k.square().sum(1, keepdim=True)
    return q @ (k / key_norms(k, geometry))


def key_norms(patches: Tensor, geometry: PatchGeometry) -> Tensor:
    """Return the divisors of the keys.

    Args:
        patches: Patches of the key map, (B, D, Hk * Wk).
        geometry: Its ``key_norm`` is ``none`` (1), ``floor`` (max(norm, epsilon)) or ``ridge``
            (sqrt of the sum of square + epsilon over the D entries).

    Returns:
        Broadcastable to the patches.
    """
    if geometry.key_norm == "none":
        return patches.new_ones(1)
    squares = patches.square().sum(1, keepdim=True)
    if geometry.key_norm == "floor":
        return squares.sqrt().clamp(min=geometry.key_epsilon)
    return (squares + patches.shape[1] * geometry.key_epsilon).sqrt()


def usable_keys(key_mask: Tensor, geometry: PatchGeometry) -> Tensor:
    """Return which keys may be matched: those whose whole patch is known.

    Args:
        key_mask: (B, 1, Hk, Wk) at the size of the key map as the site gets it, 1 = known.
        geometry: Geometry of the site; the mask is shrunk as the key map is.

    Returns:
        (B, 1, Hk / shrink, Wk / shrink) of 0 and 1; what lies outside the map counts as known.
    """
    missing = neighborhoods(1.0 - shrink_nearest(key_mask, geometry.shrink), geometry.patch)
    return (missing.amax(1, keepdim=True) == 0).to(key_mask.dtype)


def fuse_scores(
    scores: Tensor, query_grid: tuple[int, int], key_grid: tuple[int, int], side: int
) -> Tensor:
    """Add up the scores of neighboring pairs along the diagonals of the score matrix.

    With flat indices i of queries and j of keys, out[i, j] is the sum of score[i + d, j + d] for
    d = -(side // 2) .. side // 2, first with row-major indices, then with column-major ones.
    Neighbors run over the ends of rows, as in the reference; outside the matrix is 0.

    Args:
        scores: (B, H * W, Hk * Wk).
        query_grid: H, W.
        key_grid: Hk, Wk.
        side: Odd number of diagonal neighbors.
    """
    (h, w), (hk, wk) = query_grid, key_grid
    rows_first = _diagonal_sum(scores, side)
    transposed = (
        rows_first.reshape(-1, h, w, hk, wk).permute(0, 2, 1, 4, 3).reshape(-1, h * w, hk * wk)
    )
    columns_first = _diagonal_sum(transposed, side)
    back = columns_first.reshape(-1, w, h, wk, hk).permute(0, 2, 1, 4, 3)
    return back.reshape(-1, h * w, hk * wk)


def _diagonal_sum(scores: Tensor, side: int) -> Tensor:
    rows, columns, radius = scores.shape[1], scores.shape[2], side // 2
    padded = F.pad(scores, (radius, radius, radius, radius))
    total = padded[:, :rows, :columns]
    for step in range(1, side):
        total = total + padded[:, step : step + rows, step : step + columns]
    return total


def value_blocks(value: Tensor, geometry: PatchGeometry) -> Tensor:
    """Return the value map in blocks of ``value_stride`` pixels per side.

    The value patch of key (y, x) is the ``reach`` x ``reach`` neighborhood of blocks that starts
    at block (y, x), reach = value_patch / value_stride; the map is padded with zeros by
    (value_patch - value_stride) / 2 pixels so that every key has its patch.

    Args:
        value: (B, Cv, stride * Hk, stride * Wk).
        geometry: Geometry of the site.

    Returns:
        (B, Cv * stride^2, Hk + reach - 1, Wk + reach - 1).
    """
    pad = geometry.value_pad
    padded = F.pad(value, (pad, pad, pad, pad)) if pad else value
    return F.pixel_unshuffle(padded, geometry.value_stride)


def join_blocks(blocks: Tensor, geometry: PatchGeometry) -> Tensor:
    """Return the image of overlapping votes: the inverse of ``value_blocks``, with the divisor.

    Args:
        blocks: (B, Cv * stride^2, H + reach - 1, W + reach - 1), the added up votes: block (r, c)
            of the patch that query (y, x) pastes lies at (y + r, x + c).
        geometry: Geometry of the site.

    Returns:
        (B, Cv, stride * H, stride * W).
    """
    image = F.pixel_shuffle(blocks, geometry.value_stride)
    pad = geometry.value_pad
    if pad:
        height, width = image.shape[2], image.shape[3]
        image = image[:, :, pad : height - pad, pad : width - pad]
    return image if geometry.divisor == 1.0 else image / geometry.divisor


def paste_patches(
    weights: Tensor, value: Tensor, query_grid: tuple[int, int], geometry: PatchGeometry
) -> Tensor:
    """Return the overlap-add of weighted value patches, a transposed convolution.

    Args:
        weights: (B, H * W, Hk * Wk), of the value patch of each key in the patch of each query.
        value: (B, Cv, stride * Hk, stride * Wk).
        query_grid: H, W.
        geometry: Geometry of the site.

    Returns:
        (B, Cv, stride * H, stride * W).
    """
    blocks = value_blocks(value, geometry)
    reach = geometry.reach
    hk, wk = blocks.shape[2] - reach + 1, blocks.shape[3] - reach + 1
    # One channel each for the block in row r and column c of a patch, in the order (c, r, channel).
    rows = torch.cat([blocks[:, :, row : row + hk] for row in range(reach)], 1)
    patches = torch.cat([rows[:, :, :, column : column + wk] for column in range(reach)], 1)
    votes = (weights @ patches.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, query_grid)
    summed = _sum_shifted(votes, reach, lambda column: (column, reach - 1 - column, 0, 0))
    summed = _sum_shifted(summed, reach, lambda row: (0, 0, row, reach - 1 - row))
    return join_blocks(summed, geometry)


def _sum_shifted(
    votes: Tensor, parts: int, pads: Callable[[int], tuple[int, int, int, int]]
) -> Tensor:
    if parts == 1:
        return votes
    return torch.stack(
        [F.pad(part, pads(index)) for index, part in enumerate(votes.chunk(parts, 1))]
    ).sum(0)


def exact_patches(
    query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None, geometry: PatchGeometry
) -> Tensor:
    """Return exact attention between patches; shapes and meaning as in ``sites.PatchSite``."""
    query, key = (shrink_nearest(tensor, geometry.shrink) for tensor in (query, key))
    query_grid, key_grid = (query.shape[2], query.shape[3]), (key.shape[2], key.shape[3])
    scores = patch_scores(query, key, geometry)
    if geometry.fuse:
        scores = fuse_scores(scores, query_grid, key_grid, geometry.fuse)
    usable = None if key_mask is None else usable_keys(key_mask, geometry).flatten(2)
    if usable is not None:
        scores = scores * usable
    weights = _weigh(scores * geometry.scale, geometry)
    if usable is not None:
        weights = weights * usable
    return paste_patches(weights, value, query_grid, geometry)


def _weigh(logits: Tensor, geometry: PatchGeometry) -> Tensor:
    if geometry.hard:
        return (logits == logits.amax(2, keepdim=True)).to(logits.dtype)
    return logits.softmax(2)
