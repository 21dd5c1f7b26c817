"""``NystraWindowCluster`` in torch: a plain function and ``torch.ops.nystra.window_cluster``."""

from __future__ import annotations

import torch
from torch import Tensor

from ....core.errors import NystraError
from ..cluster_torch import Blocks, attend, key_clusters
from ..operator_torch import register
from ..schema import Attributes
from ..window_geometry import WindowGeometry
from ..windows_torch import check_map, empty_map, merge, partition, regions_at
from .schema import SCHEMA, cluster_seeds


def _overlaps(size: int, side: int, like: Tensor) -> Tensor:
    """Return the share of the pairs of two blocks at each offset.

    Returns:
        (count, count, 2 size - 1) for the blocks of query and key, offsets from 1 - size on.
    """
    start = torch.arange(0, size, side, device=like.device)
    end = (start + side).clamp(max=size)
    offset = torch.arange(1 - size, size, device=like.device)
    first = torch.maximum(start[:, None, None], start[None, :, None] + offset)
    last = torch.minimum(end[:, None, None], end[None, :, None] + offset)
    pairs = (end - start)[:, None] * (end - start)
    return (last - first).clamp(min=0).to(like.dtype) / pairs[..., None]


def _coarse_bias(table: Tensor, window: tuple[int, ...], side: int) -> Tensor:
    """Return the mean of exp(bias) for each pair of blocks of that side, (h, blocks, blocks).

    The table is (2wh-1, 2ww-1, h).
    """
    rows, cols = (_overlaps(size, side, table) for size in window)
    mean = torch.einsum("ijy,yxh,klx->hikjl", rows, table.exp(), cols)
    return mean.flatten(3, 4).flatten(1, 2)


def _own_bias(table: Tensor, window: tuple[int, ...], sides: tuple[int, int]) -> Tensor:
    """Return the bias between the places of one block, (h, 1, places, places)."""
    y, x = (
        torch.arange(side, device=table.device)[:, None]
        - torch.arange(side, device=table.device)
        + size
        - 1
        for side, size in zip(sides, window, strict=True)
    )
    bias = table[y[:, None, :, None], x[None, :, None, :]]  # (rows, cols, rows, cols, h)
    return bias.flatten(2, 3).flatten(0, 1).permute(2, 0, 1).unsqueeze(1)


def window_cluster(qkv: Tensor, bias_table: Tensor | None = None, **attributes: float) -> Tensor:
    """Return attention with clustered keys (B, H, W, h e), differentiable except for the clusters.

    Arguments and errors as of ``window_softmax``.
    """
    checked = SCHEMA.validate(attributes)
    geometry = WindowGeometry.of(checked)
    check_map(SCHEMA.name, qkv, geometry)
    table = _table(bias_table, geometry, checked, qkv)
    window, sides = geometry.window, qkv.shape[1:-1]
    side, coarse_side = int(checked["block"]), int(checked["bias_block"])
    q, k, v = partition(qkv, geometry)
    k = k - k.mean(-2, keepdim=True)
    members, centers = key_clusters(k, _seeds(checked, qkv), int(checked["rounds"]))

    blocks = Blocks.of([[*range(0, size, side), size] for size in window], qkv.device)
    own_q, own_k, own_v = blocks.cut(q * geometry.scale), blocks.cut(k), blocks.cut(v)
    own_members = blocks.cut(members) * blocks.real.unsqueeze(-1)
    ones = torch.ones_like(own_v[..., :1])
    sums = own_members.mT @ torch.cat([own_v, ones], -1)  # (..., blocks, m, e + 1)

    bias = _coarse_bias(table, window, coarse_side)  # (h, coarse, coarse)
    starts = [torch.arange(0, size, coarse_side, device=qkv.device) for size in window]
    first = blocks.tokens[:, 0]
    home = first // window[1] // coarse_side * len(starts[1]) + first % window[1] // coarse_side
    members = torch.zeros_like(bias[0, :, :1]).expand(-1, len(home)).clone()
    members[home, torch.arange(len(home), device=qkv.device)] = 1
    others = bias * (1 - torch.eye(len(members), dtype=bias.dtype, device=bias.device))
    if geometry.masked and geometry.shifted:
        regions = regions_at(sides, geometry, starts)
        same = regions.unsqueeze(-1) == regions.unsqueeze(-2)  # (windows, coarse, coarse)
        others = others * same.unsqueeze(1)
    flat = sums.flatten(-2)
    of_coarse = members @ flat
    inside = bias.diagonal(dim1=-2, dim2=-1)[:, home].unsqueeze(-1)
    seen = (others @ of_coarse)[..., home, :] + inside * (of_coarse[..., home, :] - flat)
    seen = seen.unflatten(-1, sums.shape[-2:])

    near = own_q @ own_k.mT + _own_bias(table, window, blocks.sides)
    near = near.masked_fill(~blocks.real.unsqueeze(-2), -torch.inf)
    out = attend(own_q, centers.unsqueeze(-3), seen[..., -1], seen[..., :-1], near, own_v)
    return merge(blocks.joined(out), sides, geometry)


def _seeds(checked: Attributes, like: Tensor) -> Tensor:
    width = int(checked["window_w"])
    rows = cluster_seeds(int(checked["window_h"]), int(checked["cluster_rows"]))
    cols = cluster_seeds(width, int(checked["cluster_cols"]))
    return torch.tensor([row * width + col for row in rows for col in cols], device=like.device)


def _table(
    bias_table: Tensor | None, geometry: WindowGeometry, checked: Attributes, like: Tensor
) -> Tensor:
    """Return the bias (2wh-1, 2ww-1, h), shifted to at most 0, so that exp is at most 1."""
    rows, cols = (2 * side - 1 for side in geometry.window)
    if not checked["bias"]:
        return like.new_zeros(rows, cols, geometry.heads)
    if bias_table is None:
        raise NystraError(f"{SCHEMA.name}: bias is 1, but there is no bias_table")
    if tuple(bias_table.shape) != (rows * cols, geometry.heads):
        raise NystraError(
            f"{SCHEMA.name}: a bias table of shape {tuple(bias_table.shape)}; expected "
            f"({rows * cols}, {geometry.heads}) = ((2 wh - 1)(2 ww - 1), heads)"
        )
    table: Tensor = bias_table.to(like.dtype).unflatten(0, (rows, cols))
    below: Tensor = table - table.amax((0, 1))
    return below


register(SCHEMA, window_cluster, empty_map(SCHEMA.name))
