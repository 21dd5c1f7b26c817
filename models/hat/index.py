"""The order of HAT's position biases for keys around a window.

Key and query of a pair lie (dr, dc) rows and columns apart, the key counted from the corner of its
own, larger window. The published index is (dr + s) L + dc + s, with s = w - k + 1 and L = w + k - 1
for a window of side w and a window of keys of side k. That is the usual order, which has
s = w - 1, moved by (k - 2)(L + 1) entries: it starts below 0, and addresses the table from its end
there. Networks are trained in this order.
"""

from __future__ import annotations

import torch
from torch import Tensor


def make_published_index(window: tuple[int, ...], keys: tuple[int, ...]) -> Tensor:
    """Return the published entry (N, Nk) of every pair of query and key, partly below 0."""
    down, across = (
        torch.arange(keys_side)[None, :] - torch.arange(side)[:, None] + side - keys_side + 1
        for side, keys_side in zip(window, keys, strict=True)
    )
    span = window[1] + keys[1] - 1
    pairs = down[:, None, :, None] * span + across[None, :, None, :]
    return pairs.flatten(2, 3).flatten(0, 1)


def map_published_rows(window: tuple[int, ...], keys: tuple[int, ...]) -> Tensor:
    """Return which row of the published table each row of a site's table is.

    A site's table has the pair (dr, dc) at (k - 1 - dr) L + k - 1 - dc, as
    ``relative_position_bias`` says.
    """
    spans = [side + keys_side - 1 for side, keys_side in zip(window, keys, strict=True)]
    moved = (keys[0] - 2) * spans[1] + keys[1] - 2
    entries = spans[0] * spans[1]
    return (entries - 1 - torch.arange(entries) - moved) % entries
