"""The sites that replace found attention in a graph."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor, nn

from ...models.geometry import WindowGeometry
from ...models.sites import MapSite, TokenSite, WindowSite, exact_windows


class FoundWindows(WindowSite):
    """Attention in windows of a map, or in windows of every n-th place that span the map."""

    def __init__(self, geometry: WindowGeometry, table: Tensor | None, *, grid: bool) -> None:
        """Take the position biases; a ``grid`` has windows of every n-th row and column."""
        super().__init__(geometry)
        self.grid = grid
        self.relative_position_bias_table = (
            None if table is None else nn.Parameter(table, requires_grad=False)
        )

    def forward(self, packed: Tensor) -> Tensor:
        """Return the attention of a packed map, shapes as `WindowSite` says."""
        if not self.grid:
            return self.attend(packed)
        rows, columns = self.geometry.window
        return _dilated(self.attend(_gathered(packed, rows, columns)), rows, columns)


class FoundMap(MapSite):
    """Attention between all positions of a map."""

    def __init__(self, heads: int, head_dim: int, value_dim: int, scale: float) -> None:
        """Take the number of heads, their size in queries, keys and values, and the scale."""
        super().__init__(scale)
        self.heads, self.head_dim, self.value_dim = heads, head_dim, value_dim

    def forward(self, packed: Tensor) -> Tensor:
        """Return the attention (B, H, W, h * e) of a packed map (B, H, W, h * (2 * d + e))."""
        widths = [self.heads * width for width in (self.head_dim, self.head_dim, self.value_dim)]
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).permute(0, 3, 4, 1, 2).flatten(0, 1)
            for part in packed.split(widths, dim=-1)
        )
        out = self.attend(q, k, v).unflatten(0, (-1, self.heads))
        back: Tensor = out.permute(0, 3, 4, 1, 2).flatten(3)
        return back


class FoundTokens(TokenSite):
    """Attention between lists of tokens."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the attention of tokens, shapes as `TokenSite` says."""
        return self.attend(q, k, v, bias)


AnyFound: TypeAlias = FoundWindows | FoundMap | FoundTokens


def _gathered(x: Tensor, rows: int, columns: int) -> Tensor:
    """Return a map with its windows of every n-th row and column reordered to adjacent ones."""
    cells = x.unflatten(2, (columns, -1)).unflatten(1, (rows, -1))
    moved: Tensor = cells.permute(0, 2, 1, 4, 3, 5).flatten(3, 4).flatten(1, 2)
    return moved


def _dilated(x: Tensor, rows: int, columns: int) -> Tensor:
    """Return a map with the order of `_gathered` undone."""
    cells = x.unflatten(2, (-1, columns)).unflatten(1, (-1, rows))
    moved: Tensor = cells.permute(0, 2, 1, 4, 3, 5).flatten(3, 4).flatten(1, 2)
    return moved


def blind(site: AnyFound) -> AnyFound:
    """Make a site ignore its scores, in place: every query gets the mean of its values.

    Returns:
        The same site.
    """
    if isinstance(site, FoundWindows):
        geometry = site.geometry
        site.implementation = lambda qkv, _table, _geometry: _mean_of_windows(qkv, geometry)
    elif isinstance(site, FoundMap):
        site.implementation = lambda q, _k, v, _scale: v.mean((2, 3), keepdim=True).expand(
            -1, -1, *q.shape[2:]
        )
    else:
        site.implementation = lambda q, _k, v, _bias, _geometry: v.mean(2, keepdim=True).expand(
            -1, -1, q.shape[2], -1
        )
    return site


def _mean_of_windows(qkv: Tensor, geometry: WindowGeometry) -> Tensor:
    whole = WindowGeometry(
        geometry.heads,
        geometry.head_dim,
        geometry.value_dim,
        geometry.window,
        geometry.shift,
        scale=0.0,
        margin=geometry.margin,
    )
    return exact_windows(qkv, None, whole)
