"""Windows over the frames of a clip as windows of rows and columns: the frames side by side.

The columns at the same position of all frames are adjacent, so that a window of frames x rows x
columns is one of rows x (columns * frames), shifted and masked as it was, and a cell of landmarks
is a box of rows, columns and frames. The operators have no position bias for this layout.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...models.geometry import WindowGeometry

if TYPE_CHECKING:
    from torch import Tensor


def refusal(geometry: WindowGeometry) -> str:
    """Return why windows do not fit this layout (they are shifted along the frames), or ""."""
    if len(geometry.window) == 3 and geometry.shift[0]:
        return f"windows of {geometry.window} are shifted along the frames, by {geometry.shift[0]}"
    return ""


def as_2d(geometry: WindowGeometry) -> WindowGeometry:
    """Return the geometry in this layout; windows of two sides are unchanged."""
    if len(geometry.window) == 2:
        return geometry
    frames, rows, columns = geometry.window
    _, down, right = geometry.shift
    window = (rows, columns * frames)
    return replace(geometry, window=window, shift=(down, right * frames))


def to_2d(qkv: Tensor, geometry: WindowGeometry) -> Tensor:
    """Return a map (B, T, H, W, C) as (B T / f, H, W f, C), f the frames of a window.

    A map of two sides is returned as it is.
    """
    if len(geometry.window) == 2:
        return qkv
    frames = geometry.window[0]
    batch = qkv.shape[1] // frames
    clips = qkv.unflatten(1, (batch, frames)).flatten(0, 1)
    flat: Tensor = clips.permute(0, 2, 3, 1, 4).flatten(2, 3)
    return flat


def to_3d(out: Tensor, qkv: Tensor, geometry: WindowGeometry) -> Tensor:
    """Return the result for the map laid out of qkv as one for qkv: (B, T, H, W, e)."""
    if len(geometry.window) == 2:
        return out
    frames = geometry.window[0]
    clips = out.unflatten(2, (qkv.shape[3], frames))
    clips = clips.permute(0, 3, 1, 2, 4)
    stacked: Tensor = clips.reshape(*qkv.shape[:4], out.shape[-1])
    return stacked
