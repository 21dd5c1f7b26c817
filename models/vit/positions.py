"""Resizes learned positions to another grid than the trained one."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import NystraError


def read_trained_grid(count: int, stated: tuple[int, int] | None, source: str) -> tuple[int, int]:
    """Return rows and columns of so many positions.

    Args:
        count: Positions of patches, the class token not counted.
        stated: What the file or the caller says.
        source: Name of the file, for messages.

    Raises:
        NystraError: The stated grid has another number, or none is stated and the number is not a
            square.
    """
    side = math.isqrt(count)
    grid = stated or (side, side)
    if grid[0] * grid[1] == count:
        return grid
    if stated is None:
        raise NystraError(
            f"{source}: its {count} positions do not form a square; give the height and width of "
            "its training images with `hyper` image_size=[H,W]"
        )
    raise NystraError(
        f"{source}: image_size gives {grid[0]}x{grid[1]} patches, the file has {count} positions. "
        "To run it at another size than it was trained at, give `resize_positions` HxW"
    )


def resize_positions(
    positions: Tensor, trained: tuple[int, int], new_grid: tuple[int, int]
) -> Tensor:
    """Return positions of another grid, bicubic with antialiasing, as timm resizes them.

    Args:
        positions: (1, before + rows * columns, C); those before the grid (a class token) stay.
        trained: Rows and columns there are.
        new_grid: Rows and columns to make.
    """
    before = positions.shape[1] - trained[0] * trained[1]
    grid = positions[:, before:].float().transpose(1, 2).unflatten(2, trained)
    resized = F.interpolate(grid, new_grid, mode="bicubic", antialias=True, align_corners=False)
    return torch.cat([positions[:, :before].float(), resized.flatten(2).transpose(1, 2)], 1)
