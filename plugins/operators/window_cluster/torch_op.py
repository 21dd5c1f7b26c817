"""``NystraWindowCluster`` in torch: a plain function and ``torch.ops.nystra.window_cluster``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ....core.errors import NystraError
from ..cluster_torch import Blocks, attend, key_clusters, sum_members
from ..operator_torch import register
from ..schema import Attributes, OperatorSchema
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


@dataclass(frozen=True)
class ClusteredWindows:
    """Windows of a map with clustered keys, cut into blocks.

    Attributes:
        q: Queries (B nW, h, N, d), scaled.
        k: Keys, their mean taken away.
        v: Values.
        members: 1 where a key is in a cluster, (B nW, h, N, m).
        centers: Means of their members, (B nW, h, m, d).
        blocks: The blocks of exact attention.
        table: Position bias (2wh-1, 2ww-1, h).
        coarse_side: Side of the blocks of the coarse bias.
        geometry: The windows.
        sides: Rows and columns of the map.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    members: Tensor
    centers: Tensor
    blocks: Blocks
    table: Tensor
    coarse_side: int
    geometry: WindowGeometry
    sides: torch.Size

    @classmethod
    def of(
        cls,
        schema: OperatorSchema,
        qkv: Tensor,
        bias_table: Tensor | None,
        attributes: Mapping[str, float],
    ) -> ClusteredWindows:
        """Return the windows of qkv (B, H, W, h(2d+e)); errors as of ``window_softmax``."""
        checked = schema.validate(attributes)
        geometry = WindowGeometry.of(checked)
        check_map(schema.name, qkv, geometry)
        table = _table(schema.name, bias_table, geometry, checked, qkv)
        side = int(checked["block"])
        q, k, v = partition(qkv, geometry)
        k = k - k.mean(-2, keepdim=True)
        members, centers = key_clusters(k, _seeds(checked, qkv), int(checked["rounds"]))
        bounds = [[*range(0, size, side), size] for size in geometry.window]
        blocks = Blocks.of(bounds, qkv.device)
        coarse_side = int(checked["bias_block"])
        return cls(
            q * geometry.scale,
            k,
            v,
            members,
            centers,
            blocks,
            table,
            coarse_side,
            geometry,
            qkv.shape[1:-1],
        )

    def sum_members(self, keys: Tensor | None) -> Tensor:
        """Return the sums of each cluster's members in each block, (B nW, h, blocks, m, c).

        Keys relative to their centers, (B nW, h, N, d), are given for those of order 1.
        """
        inside = self.blocks.cut(self.members) * self.blocks.real.unsqueeze(-1)
        own_keys = None if keys is None else self.blocks.cut(keys)
        return sum_members(inside, self.blocks.cut(self.v), own_keys)

    def sum_seen(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums that each block sees, weighted by exp(bias), both like ``sums``.

        They are those in other blocks of the coarse bias, and those in its own one.
        """
        window, device = self.geometry.window, sums.device
        bias = _coarse_bias(self.table, window, self.coarse_side)  # (h, coarse, coarse)
        starts = [torch.arange(0, size, self.coarse_side, device=device) for size in window]
        first = self.blocks.tokens[:, 0]
        row, column = first // window[1], first % window[1]
        home = row // self.coarse_side * len(starts[1]) + column // self.coarse_side
        members = torch.zeros_like(bias[0, :, :1]).expand(-1, len(home)).clone()
        members[home, torch.arange(len(home), device=device)] = 1
        others = bias * (1 - torch.eye(len(members), dtype=bias.dtype, device=device))
        if self.geometry.masked and self.geometry.shifted:
            regions = regions_at(self.sides, self.geometry, starts)
            same = regions.unsqueeze(-1) == regions.unsqueeze(-2)  # (windows, coarse, coarse)
            others = others * same.unsqueeze(1)
        flat = sums.flatten(-2)
        of_coarse = members @ flat
        inside = bias.diagonal(dim1=-2, dim2=-1)[:, home].unsqueeze(-1)
        parts = (
            (others @ of_coarse)[..., home, :],
            inside * (of_coarse[..., home, :] - flat),
        )
        elsewhere, own = (part.unflatten(-1, sums.shape[-2:]) for part in parts)
        return elsewhere, own

    def compute_own_logits(self, own_q: Tensor) -> Tensor:
        """Return the logits of queries (B nW, h, blocks, places, d) and tokens of their block."""
        bias = _own_bias(self.table, self.geometry.window, self.blocks.sides)
        logits = own_q @ self.blocks.cut(self.k).mT + bias
        return logits.masked_fill(~self.blocks.real.unsqueeze(-2), -torch.inf)

    def merge(self, blocks: Tensor) -> Tensor:
        """Return the map (B, H, W, h e) of (B nW, h, blocks, places, e)."""
        return merge(self.blocks.join(blocks), self.sides, self.geometry)


def window_cluster(qkv: Tensor, bias_table: Tensor | None = None, **attributes: float) -> Tensor:
    """Return attention with clustered keys (B, H, W, h e), differentiable except for the clusters.

    Arguments and errors as of ``window_softmax``.
    """
    windows = ClusteredWindows.of(SCHEMA, qkv, bias_table, attributes)
    own_q = windows.blocks.cut(windows.q)
    elsewhere, own = windows.sum_seen(windows.sum_members(None))
    seen = elsewhere + own
    out = attend(
        own_q,
        windows.centers.unsqueeze(-3),
        seen[..., -1],
        seen[..., :-1],
        windows.compute_own_logits(own_q),
        windows.blocks.cut(windows.v),
    )
    return windows.merge(out)


def _seeds(checked: Attributes, like: Tensor) -> Tensor:
    width = int(checked["window_w"])
    rows = cluster_seeds(int(checked["window_h"]), int(checked["cluster_rows"]))
    cols = cluster_seeds(width, int(checked["cluster_cols"]))
    return torch.tensor([row * width + col for row in rows for col in cols], device=like.device)


def _table(
    owner: str,
    bias_table: Tensor | None,
    geometry: WindowGeometry,
    checked: Attributes,
    like: Tensor,
) -> Tensor:
    """Return the bias (2wh-1, 2ww-1, h), shifted to at most 0, so that exp is at most 1."""
    rows, cols = (2 * side - 1 for side in geometry.window)
    if not checked["bias"]:
        return like.new_zeros(rows, cols, geometry.heads)
    if bias_table is None:
        raise NystraError(f"{owner}: bias is 1, but there is no bias_table")
    if tuple(bias_table.shape) != (rows * cols, geometry.heads):
        raise NystraError(
            f"{owner}: a bias table of shape {tuple(bias_table.shape)}; expected "
            f"({rows * cols}, {geometry.heads}) = ((2 wh - 1)(2 ww - 1), heads)"
        )
    table: Tensor = bias_table.to(like.dtype).unflatten(0, (rows, cols))
    below: Tensor = table - table.amax((0, 1))
    return below


register(SCHEMA, window_cluster, empty_map(SCHEMA.name))
