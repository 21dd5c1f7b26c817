"""The search as the paper describes it (section 3.2, algorithm 1), to compare ours with.

k uniform draws; propagation from the neighbors at 1, 2, 4 and 8 pixels, in this order, each of
which offers its best match; random search around the best match, in windows half as large each.
Which places at the border are searched the paper does not say: here all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nystra.models.psal.search import METRICS
from studies.psal.scores import pair_scores

_STEPS = (1, 2, 4, 8)


@torch.no_grad()
def published_search(
    query: Tensor,
    key: Tensor,
    query_mask: Tensor,
    key_mask: Tensor,
    start: Tensor,
    *,
    patch_size: int,
    iterations: int,
    neighbors: int,
    metric: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Return index and score (B, k, H, W), best first; without masks and starts.

    Args:
        query: (B, C, H, W).
        key: (B, C, Hk, Wk).
        query_mask: Not used.
        key_mask: Not used.
        start: Not used.
        patch_size: Side of a patch, odd.
        iterations: Rounds of propagation and random search.
        neighbors: k.
        metric: Number of the similarity.
        seed: Of the draws.
    """
    (batch, _, height, width), (key_height, key_width) = query.shape, key.shape[2:]
    keys = key_height * key_width
    random = torch.Generator().manual_seed(seed)

    def draw(low: Tensor, high: Tensor) -> Tensor:
        """Return uniform whole numbers from low to high."""
        share = torch.rand(low.shape, generator=random, dtype=torch.float64)
        return low + (share * (high - low + 1)).long()

    def better(index: Tensor, score: Tensor, offered: Tensor) -> tuple[Tensor, Tensor]:
        """Take an offer (B, 1, H, W), -1 for none, in the place of the worst match."""
        offered = torch.where((index == offered).any(1, keepdim=True), -1, offered)
        found = pair_scores(query, key, offered, patch_size, METRICS[metric])
        scores, order = torch.cat((score, found), 1).sort(dim=1, descending=True, stable=True)
        return torch.cat((index, offered), 1).gather(1, order)[:, :-1], scores[:, :-1]

    index = torch.full((batch, neighbors, height, width), -1)
    score = torch.full(index.shape, -torch.inf, dtype=query.dtype)
    first = torch.zeros(batch, 1, height, width, dtype=torch.long)
    for _ in range(neighbors):
        index, score = better(index, score, draw(first, first + keys - 1))
    largest = max(key_height, key_width)
    for _ in range(iterations):
        for step in _STEPS:
            for dy, dx in ((-step, 0), (step, 0), (0, -step), (0, step)):
                best = torch.full_like(first, -1)
                to, of = _overlap(height, dy), _overlap(height, -dy)
                across, other = _overlap(width, dx), _overlap(width, -dx)
                best[:, :, to, across] = index[:, :1, of, other]
                y, x = best // key_width - dy, best % key_width - dx
                fits = (best >= 0) & (y >= 0) & (y < key_height) & (x >= 0) & (x < key_width)
                index, score = better(index, score, torch.where(fits, y * key_width + x, -1))
        radius = largest
        while radius >= 1:
            y, x = index[:, :1] // key_width, index[:, :1] % key_width
            y = draw((y - radius).clamp(min=0), (y + radius).clamp(max=key_height - 1))
            x = draw((x - radius).clamp(min=0), (x + radius).clamp(max=key_width - 1))
            index, score = better(index, score, y * key_width + x)
            radius //= 2
    return index.int(), score


def _overlap(length: int, step: int) -> slice:
    """Return the places whose neighbor at ``step`` is inside the map."""
    return slice(max(0, -step), length + min(0, -step))
