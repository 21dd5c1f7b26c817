"""Rows of parametrized tests that do not run by default.

``parametrize("axes", [2, *full(3), *release(4)])``: by default, with every change, for a release.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def full(*rows: Any) -> list[Any]:
    """Return rows that run with ``-m full``; a tuple is a row of several arguments."""
    return [_row(row, pytest.mark.full) for row in rows]


def release(*rows: Any) -> list[Any]:
    """Return rows that run before a release alone."""
    return [_row(row, pytest.mark.release) for row in rows]


def _row(row: Any, mark: pytest.MarkDecorator) -> Any:
    values = row if isinstance(row, tuple) else (row,)
    return pytest.param(*values, marks=mark)


def one_in(step: int, rows: Iterable[Any]) -> list[Any]:
    """Return rows of which each ``step``-th runs by default, and the others with ``-m full``."""
    return [
        row if place % step == 0 else _row(row, pytest.mark.full) for place, row in enumerate(rows)
    ]
