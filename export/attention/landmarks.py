"""What the Nystrom forms have in common: landmarks, and the pseudoinverse between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.option import option
from ...core.option_kinds import Choice, Grid
from ...core.ports.port import join_sides
from ...models.geometry import TokenGeometry, WindowGeometry
from ...plugins.operators.pinv.schema import SCHEMA
from ...plugins.operators.window_schema import MAX_LANDMARKS, cuts_a_cell
from .frame_layout import as_2d, refusal
from .mechanism import Geometry, Windowed
from .operator_option import operator_option

_HEAD = 32
"""Usual number of channels of a head."""


@dataclass(frozen=True)
class Landmarks(Windowed):
    """Tokens are pooled into landmarks, so that a position bias is not possible."""

    keeps_bias = False
    advice = "more `landmarks`"
    candidates = (
        ({"landmarks": (2, 4)}, False),
        ({"landmarks": (4, 4)}, True),
        ({"landmarks": (4, 8)}, False),
    )

    landmarks: tuple[int, int] = option(
        Grid((4, 4), "landmarks per window", "landmarks", MAX_LANDMARKS)
    )
    iterations: int = option(operator_option(SCHEMA, "iterations"))
    init: str = option(
        Choice(
            "matrix",
            "scale the start of the pseudoinverse per matrix, or over the whole batch",
            ("matrix", "batch"),
        )
    )

    def fits(self, geometry: Geometry) -> str:
        """Return why landmarks are undefined there: too many, or a region border cuts a cell."""
        if isinstance(geometry, WindowGeometry):
            if reason := refusal(geometry):
                return reason
            geometry = as_2d(geometry)
        reason = super().fits(geometry)
        if reason or not isinstance(geometry, WindowGeometry):
            return reason or self._too_many(geometry)
        rows, columns = geometry.window
        if self.landmarks[0] > rows or self.landmarks[1] > columns:
            return f"more landmarks than rows or columns of the {rows}x{columns} window"
        if self.choose_mask(geometry):
            for side, shift, parts in zip(
                geometry.window, geometry.shift, self.landmarks, strict=True
            ):
                if cuts_a_cell(side, shift, parts):
                    return (
                        f"a region border cuts a landmark cell (window {side}, shift {shift}, "
                        f"{parts} cells); mask 'none' ignores the regions"
                    )
        return ""

    def on(self, grid: tuple[int, ...]) -> tuple[int, ...]:
        """Return the landmarks along each side of a grid; of a line all are along it."""
        count = self.landmarks[0] * self.landmarks[1]
        lines: dict[tuple[bool, ...], tuple[int, int]] = {
            (True, False): (1, count),
            (False, True): (count, 1),
        }
        is_line = tuple(type(side) is int and side == 1 for side in grid)
        return lines.get(is_line, self.landmarks)

    def _too_many(self, geometry: Geometry) -> str:
        if not isinstance(geometry, TokenGeometry) or geometry.before is not None:
            return ""
        for grid in (geometry.query_grid, geometry.key_grid):
            pairs = zip(self.on(grid), grid, strict=True)
            if any(parts > side for parts, side in pairs):
                sides = join_sides(grid)
                return f"more landmarks than rows or columns of the {sides} grid of tokens"
        return ""

    def why_not_faster(self, tokens: int) -> str:
        """Return both counts if a query costs half of exact attention or more.

        Counted in keys of exact attention, 2 x 32 multiply-adds each: every query and every key
        meets the landmarks, and a head has one pseudoinverse, four products an iteration.
        """
        count = self.landmarks[0] * self.landmarks[1]
        pseudoinverse = 4 * self.iterations * count**3 / (2 * _HEAD)
        keys = 2 * count + pseudoinverse / tokens
        if tokens <= 2 * keys:
            return f"{tokens} tokens, {count} landmarks"
        return ""

    def attributes(self, geometry: WindowGeometry) -> dict[str, Any]:
        """Return the attributes of a window operator with landmarks, frames side by side."""
        geometry = as_2d(geometry)
        return geometry.attributes() | {
            "mask": self.choose_mask(geometry),
            "landmark_rows": self.landmarks[0],
            "landmark_cols": self.landmarks[1],
            "iterations": self.iterations,
            "batch_init": int(self.init == "batch"),
        }
