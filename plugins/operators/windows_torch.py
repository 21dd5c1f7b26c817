"""Windows of a map in torch: roll, partition into heads, landmarks, regions, and back.

Maps have any number of sides: (B, H, W, C), or (B, T, H, W, C).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import NystraError
from .attention_torch import Regions, landmark_pool
from .window_geometry import WindowGeometry

_AXES = {2: ("height", "width"), 3: ("length", "height", "width")}


def check_map(owner: str, qkv: Tensor, geometry: WindowGeometry) -> None:
    """Check the packed map (B, *sides, h(2d+e)); symbolic sizes are not checked.

    Raises:
        NystraError: Rank, channels or sizes are wrong.
    """
    axes = _AXES[len(geometry.window)]
    if qkv.dim() != len(axes) + 2:
        letters = ", ".join("H" if axis == "height" else axis[0].upper() for axis in axes)
        raise NystraError(
            f"{owner}: qkv has {qkv.dim()} dimensions; expected (B, {letters}, h(2d+e))"
        )
    channels = qkv.shape[-1]
    if isinstance(channels, int) and channels != geometry.channels:
        h, d, e = geometry.heads, geometry.head_dim, geometry.value_dim
        raise NystraError(
            f"{owner}: qkv has {channels} channels; expected {geometry.channels} = "
            f"heads (2 head_dim + value_dim) = {h} (2 * {d} + {e})"
        )
    for size, window, axis in zip(qkv.shape[1:-1], geometry.window, axes, strict=True):
        if isinstance(size, int) and size % window:
            raise NystraError(
                f"{owner}: the {axis} of the map is {size}; expected a multiple of the window, "
                f"{window}: pad the map before"
            )


def empty_map(owner: str) -> Callable[..., Tensor]:
    """Return a function that allocates the output (B, H, W, h e) of a window operator."""

    def empty(qkv: Tensor, *rest: Any) -> Tensor:
        geometry = WindowGeometry.of(rest[-1])
        check_map(owner, qkv, geometry)
        return qkv.new_empty((*qkv.shape[:3], geometry.heads * geometry.value_dim))

    return empty


def partition(qkv: Tensor, geometry: WindowGeometry) -> tuple[Tensor, Tensor, Tensor]:
    """Return q (B, windows, h, N, d), k (B, windows, h, Nk, d) and v (B, windows, h, Nk, e).

    They are of the rolled map; Nk is N, or more where the key windows extend beyond the windows.

    Args:
        qkv: (B, *sides, h(2d+e)), packed q, k, v and each (head, channel).
        geometry: How it is cut.
    """
    heads, d, e = geometry.heads, geometry.head_dim, geometry.value_dim
    rolled = _roll(qkv, [-step for step in geometry.shift])
    counts = _counts(qkv.shape[1:-1], geometry)
    if geometry.overlapping:
        queries, rest = rolled.split((heads * d, heads * (d + e)), -1)
        q = _cut(queries, counts, geometry.window)
        k, v = _cut(_gather_keys(rest, counts, geometry), counts, geometry.key_window).split(
            (heads * d, heads * e), -1
        )
    else:
        q, k, v = _cut(rolled, counts, geometry.window).split((heads * d, heads * d, heads * e), -1)
    return (
        q.unflatten(-1, (heads, d)).transpose(2, 3),
        k.unflatten(-1, (heads, d)).transpose(2, 3),
        v.unflatten(-1, (heads, e)).transpose(2, 3),
    )


def _cut(grid: Tensor, counts: Sequence[int], window: Sequence[int]) -> Tensor:
    """Return the tokens (B, windows, N, C) of a map of whole windows."""
    cut = [part for pair in zip(counts, window, strict=True) for part in pair]
    cells = grid.reshape(grid.shape[0], *cut, grid.shape[-1])
    for place in _swaps(len(window)):
        cells = cells.transpose(place, place + 1)
    count = reduce(operator.mul, counts)
    return cells.reshape(grid.shape[0], count, math.prod(window), grid.shape[-1])


def _gather_keys(grid: Tensor, counts: Sequence[int], geometry: WindowGeometry) -> Tensor:
    """Return a map with all windows of keys side by side, zeros beyond the map's border.

    By ``index_select``, whose index may depend on a symbolic size.
    """
    pads = [more for margin in reversed(geometry.margin) for more in (margin, margin)]
    out = F.pad(grid, (0, 0, *pads))
    for axis, (count, window, keys) in enumerate(
        zip(counts, geometry.window, geometry.key_window, strict=True), 1
    ):
        starts = torch.arange(count, device=grid.device) * window
        places = starts[:, None] + torch.arange(keys, device=grid.device)
        out = out.index_select(axis, places.flatten())
    return out


def merge(out: Tensor, sides: Sequence[int], geometry: WindowGeometry) -> Tensor:
    """Return the map (B, *sides, h e) of the windows' results (B, windows, h, N, e)."""
    channels = geometry.heads * out.shape[-1]
    grid = out.transpose(2, 3).reshape(
        out.shape[0], *_counts(sides, geometry), *geometry.window, channels
    )
    for place in reversed(_swaps(len(sides))):
        grid = grid.transpose(place, place + 1)
    return _roll(grid.reshape(out.shape[0], *sides, channels), geometry.shift)


def _roll(grid: Tensor, steps: Sequence[int]) -> Tensor:
    axes = tuple(range(1, len(steps) + 1))
    return torch.roll(grid, tuple(steps), axes) if any(steps) else grid


def _counts(sides: Sequence[int], geometry: WindowGeometry) -> list[int]:
    return [size // window for size, window in zip(sides, geometry.window, strict=True)]


def _swaps(rank: int) -> list[int]:
    """Return which axes to swap with the next one so that counts come before windows.

    (B, count, window, count, window, ..., C) becomes (B, count, count, ..., window, window, C).
    """
    return [place for axis in range(1, rank) for place in range(2 * axis, axis, -1)]


def window_landmarks(tokens: Tensor, geometry: WindowGeometry, *parts: int) -> Tensor:
    """Return the landmarks (..., m, d) of the tokens (..., N, d) of windows.

    Args:
        tokens: Tokens of each window.
        geometry: How the map is cut.
        *parts: Number of landmarks along each side of the window; m is their product.
    """
    before, d = tokens.shape[:-2], tokens.shape[-1]
    pools = [
        landmark_pool(window, count, dtype=tokens.dtype, device=tokens.device)
        for window, count in zip(geometry.window, parts, strict=True)
    ]
    cells = pools[0] @ tokens.reshape(*before, geometry.window[0], -1)
    for axis, pool in enumerate(pools[1:], 1):
        after = math.prod(geometry.window[axis + 1 :]) * d
        cells = torch.matmul(pool, cells.unflatten(-1, (geometry.window[axis], after)))
        cells = cells.flatten(-3, -2)
    return cells


def token_regions(sides: Sequence[int], geometry: WindowGeometry, device: torch.device) -> Tensor:
    """Return the Swin region (windows, N) of each token, counted within its window from 0.

    Only the last window along each side is divided, at ``window - shift``: 2^sides regions.
    """
    own = [torch.arange(window, device=device) for window in geometry.window]
    return regions_at(sides, geometry, own)


def window_regions(
    sides: Sequence[int], geometry: WindowGeometry, parts: Sequence[int], device: torch.device
) -> Regions:
    """Return the regions of tokens (windows, 1, N) and landmarks (windows, 1, m).

    A landmark is in the region of its cell, which no border may cut.
    """
    starts = [
        torch.arange(count, device=device) * window // count
        for window, count in zip(geometry.window, parts, strict=True)
    ]
    return Regions(
        token_regions(sides, geometry, device).unsqueeze(1),
        regions_at(sides, geometry, starts).unsqueeze(1),
    )


def regions_at(sides: Sequence[int], geometry: WindowGeometry, own: list[Tensor]) -> Tensor:
    """Return the regions (windows, places) of places ``own`` along each side of a window."""
    counts, rank = _counts(sides, geometry), len(geometry.window)
    last = [torch.arange(count, device=own[0].device) == count - 1 for count in counts]
    beyond = [
        places >= window - step
        for places, window, step in zip(own, geometry.window, geometry.shift, strict=True)
    ]
    parts = []
    for axis in range(rank):
        cut = (last[axis][:, None] & beyond[axis]).long()
        parts.append(cut[tuple(_place(axis, rank))])
    region = parts[0]
    for part in parts[1:]:
        region = 2 * region + part
    return region.reshape(reduce(operator.mul, counts), -1)


def _place(axis: int, rank: int) -> list[slice | None]:
    return [slice(None) if other % rank == axis else None for other in range(2 * rank)]
