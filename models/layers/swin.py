"""The parts of SwinIR that other window networks share, on maps (B, H, W, channels)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ..geometry import WindowGeometry
from ..sites import WindowSite
from .mlp import Mlp
from .window_sides import Sides, position_bias_table


def to_image(x: Tensor) -> Tensor:
    """Return a map (B, H, W, C) in the layout of convolutions, (B, C, H, W)."""
    return x.permute(0, 3, 1, 2)


def to_map(x: Tensor) -> Tensor:
    """Return (B, C, H, W) as a map (B, H, W, C)."""
    return x.permute(0, 2, 3, 1)


def window_geometry(
    dim: int,
    heads: int,
    window: Sides,
    *,
    shift: Sides = (0, 0),
    mask: bool = True,
    qk_scale: float | None = None,
    margin: tuple[int, ...] = (),
) -> WindowGeometry:
    """Return the geometry of a site with ``dim`` channels.

    Args:
        dim: Channels of the map, a multiple of ``heads``.
        heads: Heads of attention.
        window: Rows and columns of a window.
        shift: Rows and columns by which the map is rolled.
        mask: Tokens that are neighbors only because of the shift do not attend to each other.
        qk_scale: Factor of the scores; None is head size ** -0.5.
        margin: Rows and columns by which the key window extends beyond the window, on each side.
    """
    head_dim = dim // heads
    return WindowGeometry(
        heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        window=window,
        shift=shift,
        masked=mask and shift != (0, 0),
        scale=head_dim**-0.5 if qk_scale is None else qk_scale,
        margin=margin,
    )


class WindowAttention(WindowSite):
    """Projections around window attention; keeps (B, H, W, dim)."""

    def __init__(
        self,
        dim: int,
        geometry: WindowGeometry,
        *,
        qkv_bias: bool = True,
        position_bias: bool = True,
    ) -> None:
        super().__init__(geometry)
        self.relative_position_bias_table = position_bias_table(geometry) if position_bias else None
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of the map x (B, H, W, dim)."""
        projected: Tensor = self.proj(self.attend(self.qkv(x)))
        return projected


class Block(nn.Module):
    """Attention and MLP, each with a LayerNorm before it and a skip; keeps (B, *sides, dim)."""

    def __init__(self, dim: int, hidden: int, attention: nn.Module) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = attention
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for the map x."""
        x = x + self.attn(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


def residual_convolution(dim: int, connection: str) -> nn.Module:
    """Return the layer before a skip: "1conv", "3conv" or "identity".

    Raises:
        ValueError: ``connection`` is none of them.
    """
    if connection == "identity":
        return nn.Identity()
    if connection == "1conv":
        return nn.Conv2d(dim, dim, 3, 1, 1)
    if connection != "3conv":
        raise ValueError(f"resi_connection {connection!r} is none of 1conv, 3conv and identity")
    return nn.Sequential(
        nn.Conv2d(dim, dim // 4, 3, 1, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(dim // 4, dim // 4, 1, 1, 0),
        nn.LeakyReLU(0.2),
        nn.Conv2d(dim // 4, dim, 3, 1, 1),
    )


class _Blocks(nn.Module):
    def __init__(self, blocks: Sequence[nn.Module], overlap: nn.Module | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.overlap_attn = overlap


class ResidualGroup(nn.Module):
    """Blocks, a convolution and a skip; keeps (B, H, W, dim)."""

    def __init__(
        self, blocks: Sequence[nn.Module], conv: nn.Module, overlap: nn.Module | None = None
    ) -> None:
        """Build the group from its blocks, the layer before the skip, and HAT's last block."""
        super().__init__()
        self.residual_group = _Blocks(blocks, overlap)
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        """Return the group's output for the map x."""
        y = x
        for block in self.residual_group.blocks:
            y = block(y)
        if self.residual_group.overlap_attn is not None:
            y = self.residual_group.overlap_attn(y)
        return x + to_map(self.conv(to_image(y)))


def each_group(heads: int | Sequence[int], groups: int) -> list[int]:
    """Return the heads of each group; a single number is for all.

    Raises:
        ValueError: The count of numbers is neither one nor that of the groups.
    """
    each = [heads] if isinstance(heads, int) else list(heads)
    if len(each) not in (1, groups):
        raise ValueError(f"depths has {groups} groups, num_heads {len(each)}")
    return each * groups if len(each) == 1 else each
