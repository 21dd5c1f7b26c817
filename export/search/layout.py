"""Layouts: the arrangement of the tokens of an attention on their map, from their positions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core.ports.port import join_sides
from .biases import read_biases, read_scale
from .places import MIXED, MOVED, decode
from .values import Attention, token_places

WINDOWS = ("windows", "grid", "stripes", "global")
"""Kinds of layouts whose queries are windows of a map."""


def _make_empty() -> Tensor:
    return torch.zeros(0, dtype=torch.int64)


@dataclass
class Layout:
    """The arrangement of the tokens of one attention.

    Attributes:
        kind: ``windows``; ``grid`` (windows of every n-th place); ``stripes`` (windows as high or
            as wide as the map); ``global``; ``neighbourhood`` (one query per group); ``tokens``
            (positions that form no rectangle); ``channels``; ``latent`` (queries without
            positions); ``chosen`` (tokens are selected by data).
        groups: Number of groups, windows times heads, g.
        heads: Number of heads.
        head_dim: Head size of queries and keys, d.
        value_dim: Head size of values, e.
        tokens: Number of queries of a group, N.
        keys: Number of keys of a group, Nk.
        group: Number of the group of each head of each window, (windows, heads).
        map: Batch, rows and columns of the map that the queries cover.
        window: Rows and columns of the queries.
        shift: Offset of the windows, less than a window.
        step: Distance between neighboring positions of a window.
        key_window: Rows and columns of the keys.
        margin: By how much the key window extends beyond the query window.
        before: Numbers of queries and of keys without a position, before those of the map.
        columns_first: Whether tokens are numbered column by column.
        places: Positions of the queries on the map, (windows, N): (b * rows + y) * columns + x.
        rows: Row coordinate of each row of the map, ascending.
        columns: Column coordinate of each column of the map, ascending.
        masked: "", ``regions`` (of the shift), ``hidden`` (the same, at any score) or ``other``.
        bias: "", ``table``, ``pairs`` (one bias per pair, no table) or ``data``.
        table: Table of position biases as `WindowSite` takes it, float32 or float64.
        scale: Factor of the scores, one number or one per head, (heads,).
        reason: Why the attention is not a site of windows, or "".
    """

    kind: str = ""
    groups: int = 0
    heads: int = 1
    head_dim: int = 0
    value_dim: int = 0
    tokens: int = 0
    keys: int = 0
    group: Tensor = field(default_factory=_make_empty)
    map: tuple[int, ...] = ()
    window: tuple[int, ...] = ()
    shift: tuple[int, ...] = (0, 0)
    step: tuple[int, ...] = (1, 1)
    key_window: tuple[int, ...] = ()
    margin: tuple[int, ...] = ()
    before: tuple[int, int] = (0, 0)
    columns_first: bool = False
    places: Tensor = field(default_factory=_make_empty)
    rows: Tensor = field(default_factory=_make_empty)
    columns: Tensor = field(default_factory=_make_empty)
    masked: str = ""
    bias: str = ""
    table: Tensor | None = None
    scale: float | Tensor = 1.0
    reason: str = ""

    @property
    def is_narrow(self) -> bool:
        """Whether a shifted window is as long as the map: all windows mask the same pairs then."""
        sides = zip(self.shift, self.window, self.map[1:], strict=False)
        return any(shift and side == length for shift, side, length in sides)

    def unread(self, kind: str, reason: str) -> None:
        """Set a kind of tokens that are not windows, and the reason if there is none yet."""
        self.kind = kind
        self.reason = self.reason or reason

    def text(self) -> str:
        """Return the layout as one line of text."""
        parts = [self.kind]
        if self.window:
            parts[0] += f" {join_sides(self.window)} of a map {join_sides(self.map[1:])}"
        else:
            parts[0] += f" {self.tokens} to {self.keys}"
        if any(self.shift):
            parts.append(f"shift {join_sides(self.shift)}")
        if self.step != (1, 1):
            parts.append(f"step {join_sides(self.step)}")
        if any(self.margin):
            parts.append(f"keys {join_sides(self.key_window)}")
        if any(self.before):
            parts.append(f"{max(self.before)} without a place")
        parts.append(f"{self.heads} heads of {self.head_dim}")
        if self.masked:
            parts.append("mask" if self.masked == "other" else "regions")
        if self.bias:
            names = {"table": "table", "pairs": "biases"}
            parts.append(names.get(self.bias, "biases by data"))
        return ", ".join(parts)


def read_layout(core: Attention) -> Layout:
    """Return the layout of an attention."""
    groups, tokens, head_dim = core.q_place.shape
    keys = core.k_place.shape[1]
    value_dim = core.v_place.shape[-1]
    sizes = (groups, 1, head_dim, value_dim, tokens, keys)
    group = torch.arange(groups)[:, None]
    layout = Layout("", *sizes, group=group, reason=core.reason)
    queries, one = token_places(core.q_place)
    if not bool(one.all()):
        if bool((queries == MIXED).all()) or _by_channels(core):
            layout.unread("channels", "its tokens are channels")
        else:
            layout.unread("tokens", "a query covers several positions")
        return layout
    if bool((queries < 0).all()):
        chosen = bool((core.q_place == MOVED).any())
        if chosen:
            layout.unread("chosen", "its tokens are chosen by the data")
        else:
            layout.unread("latent", "its queries are not positions of a map")
        layout.scale = read_scale(core.alpha, layout)
        return layout
    _read_heads(layout, queries)
    rows = queries[layout.group[:, 0]]
    _read_window(layout, rows)
    if layout.kind in (*WINDOWS, "neighbourhood"):
        _read_keys(layout, rows, core)
    read_biases(core, layout)
    return layout


def _by_channels(core: Attention) -> bool:
    """Return whether places vary along the summed axis of the scores: the tokens are channels."""
    _, same = token_places(core.q_place.transpose(1, 2))
    return bool(same.float().mean() > 0.99)


def _read_heads(layout: Layout, queries: Tensor) -> None:
    """Order groups by windows and heads: groups at the same positions are heads of one window."""
    _, window = queries.unique(dim=0, return_inverse=True)
    counts = window.bincount()
    if int(counts.min()) == int(counts.max()) > 1:
        layout.heads = int(counts[0])
        sorted_groups = window.argsort(stable=True)
        order = sorted_groups.view(-1, layout.heads)
        layout.group = order[order[:, 0].argsort()]


def _run(values: Tensor, side: int) -> tuple[int, int] | None:
    """Return start and step of evenly spaced places on a ring of that side, or None."""
    if len(values) == 1:
        return int(values[0]), 1
    steps = values.diff() % side
    step = int(steps[0])
    if step and bool((steps == step).all()):
        return (int(values[0]), step)
    return None


def rectangle(y: Tensor, x: Tensor) -> tuple[int, int, bool] | None:
    """Return the rectangle that the tokens of every window form, or None if they form none.

    Args:
        y: Rows of the tokens, (windows, N).
        x: Columns of the tokens, (windows, N).

    Returns:
        Rows, columns, and whether tokens are numbered column by column.
    """
    orders = ((y, x), (x, y))
    for flipped, (outer, inner) in enumerate(orders):
        changed = (outer[0] != outer[0, 0]).nonzero()
        length = int(changed[0]) if len(changed) else outer.shape[1]
        if outer.shape[1] % length:
            continue
        outer_grid = outer.view(len(outer), -1, length)
        inner_grid = inner.view(len(inner), -1, length)
        first_of_run = outer_grid[:, :, :1]
        equal_along = bool((outer_grid == first_of_run).all())
        equal_across = bool((inner_grid == inner_grid[:, :1]).all())
        if equal_along and equal_across:
            count = outer.shape[1] // length
            if flipped:
                return (length, count, True)
            return (count, length, False)
    return None


def _read_window(layout: Layout, rows: Tensor) -> None:
    """Derive map, window, shift and step from the positions of the queries (windows, N)."""
    lacking = rows[0] < 0
    before = int(lacking.sum())
    all_first = bool(lacking[:before].all())
    same_windows = bool(((rows < 0) == lacking).all())
    if not all_first or not same_windows:
        layout.unread("tokens", "some queries without a position lie between the others")
        return
    layout.before = (before, 0)
    batch, time, y, x = decode(rows[:, before:])
    one_image = bool((batch == batch[:, :1]).all())
    if not one_image or len(time.unique()) > 1:
        layout.unread("tokens", "a window spans several images")
        return
    # Rows and columns are numbered by rank, so that a map of every second position is valid.
    images, batch = batch.unique(return_inverse=True)
    layout.rows, y = y.unique(return_inverse=True)
    layout.columns, x = x.unique(return_inverse=True)
    height = len(layout.rows)
    width = len(layout.columns)
    layout.map = (len(images), height, width)
    layout.places = (batch * height + y) * width + x
    if layout.places.shape[1] == 1 and layout.keys > 1:
        layout.unread("neighbourhood", "each query has its own keys")
        layout.window = (1, 1)
        return
    extent = rectangle(y, x)
    if extent is None:
        layout.unread("tokens", "the positions of a window do not form a rectangle")
        return
    window = extent[:2]
    layout.columns_first = extent[2]
    spread = window
    if layout.columns_first:
        spread = (window[1], window[0])
    grid_y = y.view(len(y), *spread)
    grid_x = x.view(len(x), *spread)
    if layout.columns_first:
        grid_y = grid_y.transpose(1, 2)
        grid_x = grid_x.transpose(1, 2)
    runs = (
        [_run(values, height) for values in grid_y[:, :, 0]],
        [_run(values, width) for values in grid_x[:, 0]],
    )
    _read_runs(layout, window, runs)


def _read_runs(
    layout: Layout,
    window: tuple[int, ...],
    runs: tuple[list[tuple[int, int] | None], ...],
) -> None:
    """Derive kind, shift and step from the starts and steps of the windows' sides."""
    starts: list[set[int]] = []
    steps = []
    for side_runs in runs:
        even = [run for run in side_runs if run is not None]
        side_steps = {step for _, step in even}
        if len(even) < len(side_runs) or len(side_steps) > 1:
            layout.unread("tokens", "the positions of a window are not evenly spaced")
            return
        starts.append({start for start, _ in even})
        steps.append(even[0][1])
    layout.window = window
    layout.step = (steps[0], steps[1])
    sides = layout.map[1:]
    positions = len(layout.places.unique())
    covers_map = positions == math.prod(layout.map) == layout.places.numel()
    if layout.step != (1, 1):
        layout.kind = "grid"
        for step, side, length in zip(steps, sides, window, strict=True):
            if step not in (1, side // length) or side % length:
                layout.unread("grid", "its strided windows do not span the map")
        if not covers_map:
            layout.unread("grid", "its windows overlap")
        return
    shifts = []
    for side_starts, length in zip(starts, window, strict=True):
        shifts.append({start % length for start in side_starts})
    layout.kind = "windows"
    if window == sides:
        layout.kind = "global"
    elif any(length == side > 1 for length, side in zip(window, sides, strict=True)):
        layout.kind = "stripes"
    if any(len(side) > 1 for side in shifts) or not covers_map:
        layout.unread(layout.kind, "its windows overlap or start at irregular positions")
        return
    down, right = shifts
    layout.shift = (down.pop(), right.pop())


def _read_keys(layout: Layout, rows: Tensor, core: Attention) -> None:
    """Compare the positions of the keys with those of the queries, (windows, N)."""
    keys, one = token_places(core.k_place)
    keys = keys[layout.group[:, 0]]
    one = one[layout.group[:, 0]]
    if not bool(one.all()):
        layout.unread(layout.kind, "a key combines several positions")
        return
    before = layout.before[0]
    if _are_same(keys, rows):
        layout.key_window = layout.window
        layout.before = (before, before)
        return
    if bool((core.k_place == MOVED).any()):
        layout.unread(layout.kind, "its keys are chosen by the data")
        return
    if bool((keys < 0).all()):
        layout.unread(layout.kind, "its keys are not positions of a map (learned or pooled)")
        return
    without_place = (keys[0] < 0).int()
    key_before = int(without_place.cumprod(0).sum())
    layout.before = (before, key_before)
    keys = keys[:, key_before:]
    queries = rows[:, before:]
    if _are_same(keys, queries):
        layout.key_window = layout.window
        return
    _read_around(layout, keys)


def _are_same(keys: Tensor, queries: Tensor) -> bool:
    return keys.shape == queries.shape and bool((keys == queries).all())


def _read_around(layout: Layout, keys: Tensor) -> None:
    """Derive by how much keys extend beyond the queries of their window."""
    _, _, y, x = decode(keys)
    y = _rank(y, layout.rows)
    x = _rank(x, layout.columns)
    window = None
    if bool((keys >= 0).all()):
        window = rectangle(y, x)
    if window is None:
        layout.unread(layout.kind, "its keys are at other positions than its queries")
        return
    layout.key_window = window[:2]
    height, width = layout.map[1:]
    top = layout.places[:, 0] // width % height - y[:, 0]
    first_columns = layout.places[:, 0] % width - x[:, 0]
    same_top = bool((top == top[0]).all())
    same_left = bool((first_columns == first_columns[0]).all())
    margin = (int(top[0]), int(first_columns[0]))
    sides = zip(layout.window, margin, strict=True)
    wide = tuple(side + 2 * more for side, more in sides)
    fits = min(margin) >= 0 and layout.key_window == wide
    if same_top and same_left and fits and _close(y, x, window):
        layout.margin = margin
        return
    layout.unread(layout.kind, "its keys are on another grid than its queries")


def _rank(places: Tensor, sides: Tensor) -> Tensor:
    """Return rows or columns by their rank among the queries', extrapolated beyond these."""
    if len(sides) < 2:
        return places - sides[0]
    step = sides[1] - sides[0]
    return torch.div(places - sides[0], step, rounding_mode="floor")


def _close(y: Tensor, x: Tensor, window: tuple[int, int, bool]) -> bool:
    rows, columns, flipped = window
    if flipped:
        return False
    grid_y = y.view(len(y), rows, columns)
    grid_x = x.view(len(x), rows, columns)
    down = grid_y[:, :, 0].diff(dim=1)
    along = grid_x[:, 0].diff(dim=1)
    one_row_apart = bool((down == 1).all())
    one_column_apart = bool((along == 1).all())
    return one_row_apart and one_column_apart
