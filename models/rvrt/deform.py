"""Deformable attention between the frames of two clips (Liang et al., 2022, section 3.3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .sampling import Places, locate, sample


def deformable_attention(
    q: Tensor, k: Tensor, v: Tensor, offset: Tensor, *, heads: int, groups: int, side: int = 3
) -> Tensor:
    """Return attention of every pixel to ``t * side * side`` samples of keys and values.

    Query frame i looks at frame (f + i) mod t of the other clip in slot f, at ``side`` x ``side``
    taps around its own place, each moved by an offset. Keys and values are cut into channel groups
    together, keys first, and every group has offsets of its own: with an even count the first half
    moves keys, the second half values. Keys and values outside of a frame are 0.

    Args:
        q: Queries (n, t, H, W, C).
        k: Keys (n, t, H, W, C).
        v: Values (n, t, H, W, C).
        offset: (n, t, t * groups * side * side * 2, H, W): slot, group, tap, then rows and columns.
        heads: Heads that C is cut into.
        groups: Channel groups of keys and values.
        side: Odd side of the square of taps.

    Returns:
        (n, t, H, W, C).
    """
    clip, taps, channels = q.shape[1], side * side, q.shape[-1]
    moved = offset.unflatten(2, (clip, groups, taps, 2)).permute(0, 1, 2, 4, 6, 7, 3, 5)
    if groups % 2:  # a group holds keys and values: cut it
        moved, groups = moved.repeat_interleave(2, 6), 2 * groups
    half = groups // 2
    key_rows, key_places = _border_with_zeros(k, moved[..., :half, :], side)
    value_rows, value_places = _border_with_zeros(v, moved[..., half:, :], side)
    width = channels // heads
    query = (q * width**-0.5)[:, :, None, None].unflatten(-1, (heads, width))
    one_tap = (*q.shape[:2], clip, 1, *q.shape[2:4], heads, width)
    # one tap after the other: the pixels around all samples would not fit into memory
    logits = torch.cat(
        [
            (query * sample(key_rows, places).reshape(one_tap)).sum(-1)
            for places in key_places.split(3)
        ],
        3,
    )
    weights = logits.flatten(2, 3).softmax(2).unflatten(2, (clip, taps)).unsqueeze(-1)
    out = torch.zeros_like(q)
    for weight, places in zip(weights.split(1, 3), value_places.split(3), strict=True):
        out = out + (weight * sample(value_rows, places).reshape(one_tap)).sum((2, 3)).flatten(-2)
    return out


def _border_with_zeros(maps: Tensor, offset: Tensor, side: int) -> tuple[Tensor, Places]:
    """Return maps (n, t, H, W, C) as rows with a border of zeros, and the positions of samples.

    Args:
        maps: Keys or values.
        offset: (n, t, t, taps, H, W, groups, 2).
        side: Side of the square of taps.

    Returns:
        Rows of a group, and places (n, t, t, taps, H, W, groups).
    """
    batch, clip, height, width, channels = maps.shape
    groups = offset.shape[6]
    rows = F.pad(maps.flatten(0, 1), (0, 0, 1, 1, 1, 1)).reshape(-1, channels // groups)

    def count(length: int, *shape: int) -> Tensor:
        return torch.arange(length, device=maps.device).view(shape)

    tap = count(side * side, -1, 1, 1, 1)
    down = torch.div(tap, side, rounding_mode="floor")
    rim = 1 - side // 2
    y = offset[..., 0] + (count(height, -1, 1, 1) + down + rim).to(offset.dtype)
    x = offset[..., 1] + (count(width, -1, 1) + tap - side * down + rim).to(offset.dtype)
    size = (height + 2, width + 2)
    source = (count(clip, -1, 1) + count(clip, -1)) % clip  # (query frame, slot)
    frame = count(batch, -1, 1, 1) * clip + source
    first = frame[..., None, None, None, None] * (size[0] * size[1] * groups) + count(groups, -1)
    return rows, locate(y, x, first, size, groups)
