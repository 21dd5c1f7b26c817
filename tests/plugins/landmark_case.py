"""Rows, valid nodes and changes that the tests of both Nystrom forms share."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from conformance_case import EVERYWHERE, Case
from window_case import BASE, CHANGES, GOOD, SIZE_CHANGES, WindowCase, window_row


@dataclass(frozen=True)
class LandmarkCase(WindowCase):
    """A row of a form."""

    @property
    def large(self) -> bool:
        return self.attributes["window_h"] * self.attributes["window_w"] >= 2304


def landmark_rows(name: str) -> list[Case]:
    """Return the rows that both Nystrom forms have."""
    row = functools.partial(window_row, name, of=LandmarkCase)

    def at(rows: int, cols: int, **rest: int | float) -> dict[str, int | float]:
        return {"landmark_rows": rows, "landmark_cols": cols, **rest}

    cases = [
        row((1, 1, 1), (1, 1, 1), (1, 1), **at(1, 1)),
        row((1, 8, 8), (2, 10, 10), (8, 8), (4, 4), **at(4, 4, mask=1)),
        row((2, 16, 24), (2, 30, 30), (8, 8), (4, 4), **at(4, 4, mask=1)),
        row((2, 16, 24), (2, 30, 30), (8, 8), (4, 4), **at(4, 4, mask=1, batch_init=1)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), **at(3, 5)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), **at(3, 5, batch_init=1)),
        row((1, 14, 7), (2, 5, 5), (7, 7), (3, 2), **at(7, 7, mask=1, iterations=3)),
        row((3, 12, 12), (2, 5, 3), (4, 6), (2, 3), **at(2, 2, mask=1)),
        row((2, 12, 12), (2, 3, 5), (4, 6), (2, 0), **at(2, 1, mask=1)),
        row((2, 8, 12), (1, 32, 1), (4, 6), (0, 2), **at(1, 3, mask=1)),
        row((1, 16, 16), (2, 1, 32), (16, 16), (8, 8), **at(1, 1)),
        row((1, 16, 16), (1, 16, 17), (16, 16), (8, 12), **at(4, 4, mask=1)),
        row((1, 4, 4), (2, 8, 8), (2, 2), **at(4, 4, iterations=2)),
        row((1, 9, 17), (2, 15, 16), (9, 17), **at(3, 5)),
        row((1, 6, 8), (1, 70, 131), (6, 8), (3, 4), **at(2, 2, mask=1)),
        row((1, 8, 8), (1, 128, 68), (8, 8), **at(8, 8, iterations=2)),
        row((1, 32, 32), (2, 30, 30), (32, 32), (16, 16), **at(4, 4, mask=1)),
        row((2, 16, 16), (2, 32, 32), (16, 16), (8, 8), **at(4, 4, mask=1)),
        row((1, 9, 18), (2, 16, 24), (9, 9), **at(3, 4)),
        row((1, 16, 12), (3, 12, 20), (8, 12), (4, 6), **at(2, 2, mask=1, batch_init=1)),
        row((1, 8, 8), (2, 32, 30), (8, 8), **at(4, 4), values="large"),
        row((1, 24, 48), (1, 10, 3), (24, 24), (12, 12), **at(4, 4, mask=1)),
        row((1, 48, 48), (1, 10, 3), (48, 48), (24, 24), **at(4, 4, mask=1)),
        row((1, 64, 64), (1, 10, 3), (64, 64), (32, 32), **at(8, 8, mask=1)),
        row((1, 96, 96), (1, 10, 3), (96, 96), **at(4, 4)),
    ]
    cases += [
        row((2, 8, 8), (2, 8, 8), (8, 8), **at(2, 4, iterations=steps, batch_init=steps // 2 % 2))
        for steps in range(1, 9)
    ]
    cases += [
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values=values, **at(2, 2, mask=1))
        for values in ("zero", "tiny", "large")
    ]
    cases += [
        row((2, 8, 8), (2, 10, 10), (4, 4), values="nan", **at(2, 2)),
        row((1, 14, 14), (2, 5, 5), (7, 7), (3, 3), **at(4, 4, mask=1), refused_by=EVERYWHERE),
        row((1, 8, 8), (2, 5, 5), (4, 4), (2, 2), **at(1, 2, mask=1), refused_by=EVERYWHERE),
        row((1, 8, 8), (2, 5, 5), (4, 4), (2, 2), **at(2, 1, mask=1), refused_by=EVERYWHERE),
        row((1, 9, 8), (2, 5, 5), (4, 4), **at(2, 2), refused_by=EVERYWHERE),
        row((1, 8, 8), (2, 5, 5), (4, 4), **at(2, 2, revision=2), refused_by=frozenset({"cpu"})),
    ]
    return cases


LANDMARK_BASE: dict[str, int | float] = {
    **BASE,
    "landmark_rows": 2,
    "landmark_cols": 4,
    "iterations": 2,
    "batch_init": 0,
}
LANDMARK_CHANGES: dict[str, dict[str, int | float]] = {
    **SIZE_CHANGES,
    **CHANGES,
    "landmark_rows": {"landmark_rows": 4},
    "landmark_cols": {"landmark_cols": 2},
    "iterations": {"iterations": 3},
    "batch_init": {"batch_init": 1},
}
GOOD_LANDMARKS: dict[str, Any] = {
    **GOOD,
    "landmark_rows": 2,
    "landmark_cols": 2,
    "iterations": 3,
}
