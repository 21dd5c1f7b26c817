"""The sites that replace found attention in a graph."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ...core.errors import NystraError
from ...models.geometry import TokenGeometry, WindowGeometry
from ...models.sites import MapSite, TokenSite, WindowSite, exact_windows
from ...plugins.operators.window_cosine.torch_op import normalize
from ..search.layout import WINDOWS, Layout


class NotOnMap(Exception):  # noqa: N818 - no error: the attention is served in another way
    """A tensor cannot be written as a map; the message says why."""


class FoundWindows(WindowSite):
    """Attention in windows of a map, or in windows of every n-th place that span the map."""

    def __init__(
        self,
        geometry: WindowGeometry,
        table: Tensor | None,
        *,
        grid: bool,
        logit_scale: Tensor | None = None,
        epsilon: float = 0.0,
    ) -> None:
        """Take the tensors of a site.

        Args:
            geometry: Geometry of its windows.
            table: Position biases, or None.
            grid: Whether windows are of every n-th row and column.
            logit_scale: Factors of the scores of each head (heads,), if queries and keys are
                divided by their norms.
            epsilon: The least norm that they are divided by.
        """
        super().__init__(geometry)
        self.grid = grid
        self.relative_position_bias_table = (
            None if table is None else nn.Parameter(table, requires_grad=False)
        )
        self.logit_scale = (
            None if logit_scale is None else nn.Parameter(logit_scale, requires_grad=False)
        )
        self.epsilon = epsilon

    def attend(self, qkv: Tensor) -> Tensor:
        """Return the attention of qkv; queries and keys are normalized here or by the operator."""
        if self.logit_scale is None:
            return super().attend(qkv)
        by_cosines = getattr(self.implementation, "by_cosines", None)
        if by_cosines is not None:
            out: Tensor = by_cosines(
                qkv, self.bias_table(), self.logit_scale, self.epsilon, self.geometry
            )
            return out
        unit = normalize(qkv, self.logit_scale, self.geometry.head_dim, self.epsilon)
        return self.implementation(unit, self.bias_table(), self.geometry)

    def forward(self, packed: Tensor) -> Tensor:
        """Return the attention of a packed map, shapes as `WindowSite` says."""
        if not self.grid:
            return self.attend(packed)
        rows, columns = self.geometry.window
        windows = _gather_windows(packed, rows, columns)
        return _spread_windows(self.attend(windows), rows, columns)


class FoundMap(MapSite):
    """Attention between all positions of a map."""

    def __init__(
        self,
        heads: int,
        head_dim: int,
        value_dim: int,
        scale: float,
    ) -> None:
        super().__init__(scale)
        self.heads = heads
        self.head_dim = head_dim
        self.value_dim = value_dim

    def forward(self, packed: Tensor) -> Tensor:
        """Return the attention (B, H, W, h * e) of a packed map (B, H, W, h * (2 * d + e))."""
        packed_heads = (self.head_dim, self.head_dim, self.value_dim)
        widths = [self.heads * width for width in packed_heads]
        maps = []
        for part in packed.split(widths, dim=-1):
            by_head = part.unflatten(-1, (self.heads, -1))
            maps_of_heads = by_head.permute(0, 3, 4, 1, 2)
            maps.append(maps_of_heads.flatten(0, 1))
        q, k, v = maps
        out = self.attend(q, k, v)
        out = out.unflatten(0, (-1, self.heads))
        by_pixel = out.permute(0, 3, 4, 1, 2)
        back: Tensor = by_pixel.flatten(3)
        return back


class FoundTokens(TokenSite):
    """Attention between lists of tokens."""

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return the attention of tokens, shapes as `TokenSite` says."""
        return self.attend(q, k, v, bias)


class FoundFreeTokens(FoundTokens):
    """Attention between lists of tokens of any number."""

    def forward(  # type: ignore[override]
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sides: Tensor | None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return the attention of tokens, shapes as `TokenSite` says.

        Only the shape of ``sides`` is read: rows and columns of the queries' map, behind the tokens
        before it. Without it they are a line. So are keys at other places.
        """
        before = self.geometry.before or (0, 0)
        queries = tuple(sides.shape) if sides is not None else (1, q.shape[2] - before[0])
        keys = queries
        if self.geometry.separate:
            keys = (1, k.shape[2] - before[1])
        geometry = replace(self.geometry, query_grid=queries, key_grid=keys)
        return self.implementation(q, k, v, bias, geometry)


AnyFound: TypeAlias = FoundWindows | FoundMap | FoundTokens


def find_refusal(layout: Layout) -> str:
    """Return why the layout of an attention is not one of a map site, or ""."""
    if layout.reason:
        return layout.reason
    if layout.kind not in WINDOWS:
        return "its tokens are not windows of a map"
    if any(layout.before):
        return "tokens without a position precede those of the map"
    if layout.step != (1, 1) and any(layout.margin):
        return "keys extend beyond strided windows"
    return ""


def make_map_site(
    layout: Layout,
    factor: float,
    dtype: torch.dtype,
    *,
    is_global: bool,
    epsilon: float | None = None,
) -> FoundWindows | FoundMap:
    """Return the site that computes an attention on its map.

    Args:
        layout: The layout of its tokens.
        factor: Factor of queries and keys, in addition to that of the scores.
        dtype: Type of the position biases.
        is_global: Whether all positions of a map of any size attend to each other.
        epsilon: The least norm that queries and keys are divided by; None: they are not.

    Raises:
        NotOnMap: No site computes it.
    """
    scale = factor * (layout.scale if isinstance(layout.scale, float) else 1.0)
    if is_global:
        if layout.table is not None or any(layout.shift) or layout.masked:
            raise NotOnMap("attention over a whole map of any size has biases")
        return FoundMap(layout.heads, layout.head_dim, layout.value_dim, scale)
    try:
        geometry = WindowGeometry(
            layout.heads,
            layout.head_dim,
            layout.value_dim,
            layout.window,
            layout.shift,
            layout.masked in ("regions", "hidden"),
            scale,
            layout.margin if any(layout.margin) else (),
            layout.masked == "hidden",
        )
    except NystraError as error:
        raise NotOnMap(str(error)) from error
    table = None if layout.table is None else layout.table.to(dtype)
    grid = layout.step != (1, 1)
    if epsilon is None:
        return FoundWindows(geometry, table, grid=grid)
    scales = torch.ones(layout.heads)
    if isinstance(layout.scale, Tensor):
        scales = layout.scale
    scales = scales.to(dtype)
    return FoundWindows(geometry, table, grid=grid, logit_scale=scales, epsilon=epsilon)


def make_token_geometry(layout: Layout) -> TokenGeometry:
    """Return the geometry of an attention's tokens; tokens without a known grid form one row."""
    queries = _grid(layout.window, layout.tokens, layout.before[0])
    keys = _grid(layout.key_window, layout.keys, layout.before[1])
    if layout.columns_first or not queries or not keys:
        queries = (1, layout.tokens)
        keys = (1, layout.keys)
    margin: tuple[int, ...] = ()
    if any(layout.margin) and len(keys) == 2 and keys[0] > 1:
        margin = layout.margin
    scale = 1.0
    if isinstance(layout.scale, float):
        scale = layout.scale
    return TokenGeometry(queries, keys, scale, margin)


def _grid(window: tuple[int, ...], tokens: int, before: int) -> tuple[int, ...]:
    if window and math.prod(window) + before == tokens:
        return window
    return ()


def _gather_windows(x: Tensor, rows: int, columns: int) -> Tensor:
    """Return a map with its windows of every n-th row and column reordered to adjacent ones."""
    cells = x.unflatten(2, (columns, -1))
    cells = cells.unflatten(1, (rows, -1))
    moved = cells.permute(0, 2, 1, 4, 3, 5)
    windows: Tensor = moved.flatten(3, 4).flatten(1, 2)
    return windows


def _spread_windows(x: Tensor, rows: int, columns: int) -> Tensor:
    """Return a map with the order of `_gather_windows` undone."""
    cells = x.unflatten(2, (-1, columns))
    cells = cells.unflatten(1, (-1, rows))
    moved = cells.permute(0, 2, 1, 4, 3, 5)
    x_map: Tensor = moved.flatten(3, 4).flatten(1, 2)
    return x_map


def ignore_scores(site: AnyFound) -> None:
    """Make a site ignore its scores, in place: every query gets the mean of its values."""
    if isinstance(site, FoundWindows):
        equal = replace(site.geometry, masked=False, scale=0.0)  # every key has the same weight
        site.implementation = lambda qkv, _table, _geometry: exact_windows(qkv, None, equal)
    elif isinstance(site, FoundMap):

        def mean_of_map(q: Tensor, _k: Tensor, v: Tensor, _scale: Any) -> Tensor:
            mean = v.mean((2, 3), keepdim=True)
            return mean.expand(-1, -1, *q.shape[2:])

        site.implementation = mean_of_map
    else:

        def mean_of_tokens(q: Tensor, _k: Tensor, v: Tensor, *_: Any) -> Tensor:
            mean = v.mean(2, keepdim=True)
            return mean.expand(-1, -1, q.shape[2], -1)

        site.implementation = mean_of_tokens
