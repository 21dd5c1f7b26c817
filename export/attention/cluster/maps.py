"""Clustered keys between all positions of a map of any size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ....plugins.operators.cluster_torch import attend, key_clusters
from .parameters import LARGEST, Cluster


def attend_map(q: Tensor, k: Tensor, v: Tensor, scale: float, mechanism: Cluster) -> Tensor:
    """Return the attention of a map; shapes as in ``models.sites.MapSite``, sides may be free.

    The map is cut into blocks, the last of which extend beyond it by places without weight.
    """
    (rows, columns), block = mechanism.sizes(LARGEST)
    height, width = q.shape[2], q.shape[3]
    tokens = [part.flatten(2).mT for part in (k, v)]  # (B, N, C)
    keys = tokens[0] - tokens[0].mean(1, keepdim=True)
    starts = _seeds(height, rows, k.device) * width, _seeds(width, columns, k.device)
    seeds = (starts[0].unsqueeze(1) + starts[1]).flatten()
    members, centers = key_clusters(keys, seeds, mechanism.rounds)

    def cut(part: Tensor) -> Tensor:
        return _cut(part.mT.unflatten(2, (height, width)), block)

    inside = _cut(torch.ones_like(q[:1, :1]), block)[..., 0]  # (1, blocks, places)
    own_q, own_k, own_v = _cut(q * scale, block), cut(keys), cut(tokens[1])
    counted = torch.cat([own_v, inside.unsqueeze(-1).expand_as(own_v[..., :1])], -1)
    sums = cut(members).mT @ counted  # (B, blocks, m, e + 1)
    seen = sums.sum(1, keepdim=True) - sums
    near = own_q @ own_k.mT + inside.log().unsqueeze(-2)
    out = attend(own_q, centers.unsqueeze(1), seen[..., -1], seen[..., :-1], near, own_v)
    return _whole(out, height, width, block)


def _seeds(side: int, parts: int, device: torch.device) -> Tensor:
    """Return `cluster_seeds` of a side that may be free."""
    return (2 * torch.arange(parts, device=device) + 1) * side // (2 * parts)


def _cut(part: Tensor, block: int) -> Tensor:
    """Return the blocks (B, blocks, places, C) of a map (B, C, H, W), padded by 0."""
    padded = F.pad(part, (0, -part.shape[3] % block, 0, -part.shape[2] % block))
    cells = padded.unflatten(3, (-1, block)).unflatten(2, (-1, block))
    blocks: Tensor = cells.permute(0, 2, 4, 3, 5, 1).flatten(3, 4).flatten(1, 2)
    return blocks


def _whole(blocks: Tensor, height: int, width: int, block: int) -> Tensor:
    """Return the map (B, C, height, width) of blocks (B, blocks, places, C)."""
    columns = (width + block - 1) // block
    cells = blocks.unflatten(2, (block, block)).unflatten(1, (-1, columns))
    whole = cells.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)
    cut: Tensor = whole[:, :, :height, :width]
    return cut
