"""Windows of a map in torch: roll, partition into heads, landmarks, regions, and back."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import NystraError
from .attention import Regions, landmark_pool


class Geometry(NamedTuple):
    """How a map is cut: heads, head and value size, window and shift, all in places."""

    heads: int
    head_dim: int
    value_dim: int
    window_h: int
    window_w: int
    shift_h: int = 0
    shift_w: int = 0

    @property
    def channels(self) -> int:
        """The channels of the packed map, h(2d+e)."""
        return self.heads * (2 * self.head_dim + self.value_dim)


def check_map(owner: str, qkv: Tensor, geometry: Geometry) -> None:
    """Check the packed map (B, H, W, h(2d+e)); a symbolic size is taken as right.

    Raises:
        NystraError: rank, channels or sizes are wrong.
    """
    if qkv.dim() != 4:
        raise NystraError(f"{owner}: qkv has {qkv.dim()} dimensions; expected (B, H, W, h(2d+e))")
    _, height, width, channels = qkv.shape
    if isinstance(channels, int) and channels != geometry.channels:
        h, d, e = geometry[:3]
        raise NystraError(
            f"{owner}: qkv has {channels} channels; expected {geometry.channels} = "
            f"heads (2 head_dim + value_dim) = {h} (2 * {d} + {e})"
        )
    for size, window, axis in (
        (height, geometry.window_h, "height"),
        (width, geometry.window_w, "width"),
    ):
        if isinstance(size, int) and size % window:
            raise NystraError(
                f"{owner}: the {axis} of the map is {size}; expected a multiple of the window, "
                f"{window}: pad the map before"
            )


def partition(qkv: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k (B, windows, h, N, d) and v (B, windows, h, N, e) of the rolled map.

    Args:
        qkv: (B, H, W, h(2d+e)), packed q, k, v and each (head, channel).
        geometry: how it is cut.
    """
    heads, d, e, window_h, window_w, shift_h, shift_w = geometry
    batch, height, width, _ = qkv.shape
    rolled = torch.roll(qkv, (-shift_h, -shift_w), (1, 2)) if shift_h or shift_w else qkv
    grid = rolled.reshape(
        batch, height // window_h, window_h, width // window_w, window_w, geometry.channels
    )
    tokens = grid.transpose(2, 3).reshape(
        batch,
        (height // window_h) * (width // window_w),
        window_h * window_w,
        geometry.channels,
    )
    q, k, v = tokens.split((heads * d, heads * d, heads * e), -1)
    return (
        q.unflatten(-1, (heads, d)).transpose(2, 3),
        k.unflatten(-1, (heads, d)).transpose(2, 3),
        v.unflatten(-1, (heads, e)).transpose(2, 3),
    )


def merge(out: Tensor, height: int, width: int, geometry: Geometry) -> Tensor:
    """Return the map (B, H, W, h e) of the windows' results (B, windows, h, N, e)."""
    heads, _, e, window_h, window_w, shift_h, shift_w = geometry
    grid = out.transpose(2, 3).reshape(
        out.shape[0], height // window_h, width // window_w, window_h, window_w, heads * e
    )
    merged = grid.transpose(2, 3).reshape(out.shape[0], height, width, heads * e)
    return torch.roll(merged, (shift_h, shift_w), (1, 2)) if shift_h or shift_w else merged


def window_landmarks(tokens: Tensor, geometry: Geometry, rows: int, cols: int) -> Tensor:
    """Return the landmarks (..., rows * cols, d) of the tokens (..., N, d) of windows."""
    window_h, window_w = geometry.window_h, geometry.window_w
    row_pool = landmark_pool(window_h, rows, dtype=tokens.dtype, device=tokens.device)
    col_pool = landmark_pool(window_w, cols, dtype=tokens.dtype, device=tokens.device)
    d = tokens.shape[-1]
    by_row = row_pool @ tokens.reshape(*tokens.shape[:-2], window_h, window_w * d)
    cells = torch.matmul(col_pool, by_row.unflatten(-1, (window_w, d)))
    return cells.flatten(-3, -2)


def token_regions(height: int, width: int, geometry: Geometry, device: torch.device) -> Tensor:
    """Return the Swin region (windows, N) of each token, 0 to 3, counted within its window.

    Only the last row and the last column of windows are cut, at ``window - shift``.
    """
    return _regions(
        height,
        width,
        geometry,
        torch.arange(geometry.window_h, device=device),
        torch.arange(geometry.window_w, device=device),
    )


def window_regions(
    height: int, width: int, geometry: Geometry, rows: int, cols: int, device: torch.device
) -> Regions:
    """Return the regions of tokens (windows, 1, N) and landmarks (windows, 1, rows * cols).

    A landmark is in the region of its cell, which no border may cut.
    """
    row_starts = torch.arange(rows, device=device) * geometry.window_h // rows
    col_starts = torch.arange(cols, device=device) * geometry.window_w // cols
    return Regions(
        token_regions(height, width, geometry, device).unsqueeze(1),
        _regions(height, width, geometry, row_starts, col_starts).unsqueeze(1),
    )


def _regions(
    height: int, width: int, geometry: Geometry, local_rows: Tensor, local_cols: Tensor
) -> Tensor:
    device = local_rows.device
    count_h, count_w = height // geometry.window_h, width // geometry.window_w
    last_h = torch.arange(count_h, device=device) == count_h - 1
    last_w = torch.arange(count_w, device=device) == count_w - 1
    below = local_rows >= geometry.window_h - geometry.shift_h
    right = local_cols >= geometry.window_w - geometry.shift_w
    row_part = (last_h[:, None] & below).long()[:, None, :, None]
    col_part = (last_w[:, None] & right).long()[None, :, None, :]
    return (2 * row_part + col_part).reshape(count_h * count_w, -1)
