"""The window transformer of RVRT: over the frames of a clip, or over each frame by itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..geometry import WindowGeometry
from ..layers.swin import Block
from ..layers.window_sides import position_bias_table
from ..sites import WindowSite
from .frames import FrameConv


@dataclass(frozen=True)
class Windows:
    """The attention windows of a stage's blocks.

    Attributes:
        heads: Attention heads.
        window: Sides of a window: rows and columns, or frames before them.
        shift: Shift of every second block, along each side.
        position_bias: Attention adds a relative position bias.
        mask: Tokens that the cyclic shift made neighbors do not see each other.
    """

    heads: int
    window: tuple[int, ...]
    shift: tuple[int, ...]
    position_bias: bool = True
    mask: bool = True

    def geometry(self, dim: int, *, shifted: bool) -> WindowGeometry:
        """Return the geometry of a site with ``dim`` channels."""
        width = dim // self.heads
        shift = self.shift if shifted else (0,) * len(self.window)
        masked = self.mask and any(shift)
        return WindowGeometry(
            self.heads, width, width, self.window, shift, masked=masked, scale=width**-0.5
        )


class WindowAttention(WindowSite):
    """Projections around window attention of maps (B, *sides, dim) of any sides.

    A map that is not a multiple of the window is padded with zeros, which are attended to like
    other tokens.
    """

    def __init__(self, dim: int, geometry: WindowGeometry, *, position_bias: bool = True) -> None:
        super().__init__(geometry)
        self.relative_position_bias_table = position_bias_table(geometry) if position_bias else None
        self.qkv_self = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of the map x (B, *sides, dim)."""
        sides = x.shape[1:-1]
        attended = self.attend(self.qkv_self(_pad(x, self.geometry.window)))
        for axis, side in enumerate(sides, 1):
            attended = attended.narrow(axis, 0, side)
        projected: Tensor = self.proj(attended)
        return projected


def _pad(x: Tensor, window: tuple[int, ...]) -> Tensor:
    sides = zip(x.shape[1:-1], window, strict=True)
    over = [(side + step - 1) // step * step - side for side, step in sides]
    return F.pad(x, (0, 0, *(end for side in reversed(over) for end in (0, side))))


class _Blocks(nn.Module):
    def __init__(self, dim: int, depth: int, hidden: int, windows: Windows) -> None:
        super().__init__()

        def block(index: int) -> Block:
            geometry = windows.geometry(dim, shifted=index % 2 == 1)
            attention = WindowAttention(dim, geometry, position_bias=windows.position_bias)
            return Block(dim, hidden, attention)

        self.blocks = nn.ModuleList(block(index) for index in range(depth))


class Group(nn.Module):
    """Blocks, a linear layer and a skip: (B, *sides, dim) to the same."""

    def __init__(self, dim: int, depth: int, hidden: int, windows: Windows) -> None:
        super().__init__()
        self.residual_group = _Blocks(dim, depth, hidden, windows)
        self.linear = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the group's output for the map x."""
        y = x
        for block in self.residual_group.blocks:
            y = block(y)
        out: Tensor = x + self.linear(y)
        return out


@dataclass(frozen=True)
class Depth:
    """The depth of a stage.

    Attributes:
        groups: Number of groups of blocks.
        blocks: Blocks per group.
        hidden: Channels inside their MLPs.
    """

    groups: int
    blocks: int
    hidden: int


class Stage(nn.Module):
    """A convolution and groups of blocks between two norms: (n, t, inputs, H, W) to dim channels.

    Windows of two sides cover each frame by itself, windows of three the frames of a clip.
    """

    def __init__(
        self, inputs: int, dim: int, depth: Depth, windows: Windows, *, conv_groups: int = 1
    ) -> None:
        super().__init__()
        self.over_frames = len(windows.window) == 3
        groups = [Group(dim, depth.blocks, depth.hidden, windows) for _ in range(depth.groups)]
        self.main = nn.ModuleDict(  # named by their places in the published list of layers
            {
                "1": FrameConv(inputs, dim, groups=conv_groups),
                "3": nn.LayerNorm(dim),
                "5": nn.Sequential(*groups),
                "7": nn.LayerNorm(dim),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the features (n, t, dim, H, W) of x."""
        frames = x.shape[:2]
        y = self.main["3"](self.main["1"](x.flatten(0, 1)).permute(0, 2, 3, 1))
        if self.over_frames:
            y = self.main["5"](y.unflatten(0, frames)).flatten(0, 1)
        else:
            y = self.main["5"](y)
        out: Tensor = self.main["7"](y).permute(0, 3, 1, 2).unflatten(0, frames)
        return out
