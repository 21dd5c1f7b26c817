"""The tests' record of ``NystraWindowOverlap``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conformance_case import EVERYWHERE, Case
from operator_tests import OperatorTests
from window_case import (
    BIAS_CHANGE,
    CHANGES,
    GOOD_SIZES,
    QKV,
    SIZES,
    base_case,
    open_node,
    window_row,
)


def _cases() -> list[Case]:
    def row(
        size: tuple[int, int, int],
        heads: tuple[int, int, int],
        window: tuple[int, int],
        margin: tuple[int, int],
        table: int | None = None,
        **rest: Any,
    ) -> Case:
        """A row; its bias table has ``table`` entries per head, or there is none."""
        case = window_row("NystraWindowOverlap", size, heads, window, **rest)
        kept = {name: n for name, n in case.attributes.items() if not name.startswith("shift")}
        margins = {"margin_h": margin[0], "margin_w": margin[1], "bias": int(table is not None)}
        shape = (1, 1) if table is None else (table, heads[0])
        return replace(case, attributes=kept | margins, table=shape)

    return [
        row((1, 1, 1), (1, 1, 1), (1, 1), (0, 0)),
        row((1, 1, 1), (1, 1, 1), (1, 1), (1, 1), 9),
        row((1, 8, 8), (2, 10, 10), (8, 8), (2, 2), 19 * 19),
        row((2, 16, 24), (2, 30, 30), (8, 8), (2, 2), 19 * 19),
        row((1, 32, 16), (1, 30, 30), (16, 16), (4, 4), 39 * 39),
        row((1, 32, 32), (2, 8, 8), (16, 16), (4, 4)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 1), 19 * 15),
        row((3, 12, 12), (2, 5, 3), (4, 6), (0, 3), 7 * 17),
        row((2, 12, 12), (2, 3, 5), (4, 6), (5, 0)),
        row((1, 9, 17), (2, 16, 17), (9, 17), (1, 2), 19 * 37),
        row((1, 4, 8), (1, 70, 131), (4, 8), (2, 4), 11 * 23),
        row((1, 3, 3), (1, 128, 68), (3, 3), (7, 7)),
        row((1, 12, 8), (1, 8, 16), (6, 4), (2, 1), 15 * 9),
        row((1, 16, 16), (1, 64, 34), (8, 8), (4, 4), 23 * 23),
        row((2, 8, 8), (2, 10, 10), (4, 4), (0, 0), 49),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), 11 * 11, values="zero"),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), 11 * 11, values="tiny"),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), 11 * 11, values="large"),
        row((1, 8, 8), (2, 10, 10), (4, 4), (1, 1), values="huge"),
        row((2, 8, 8), (2, 10, 10), (4, 4), (1, 1), 9 * 9, values="nan"),
        row((1, 9, 8), (2, 5, 5), (4, 4), (1, 1), refused_by=EVERYWHERE, dtypes=("float32",)),
        row((1, 8, 8), (2, 5, 5), (4, 4), (1025, 1), refused_by=EVERYWHERE, dtypes=("float32",)),
    ]


TESTS = OperatorTests(
    cases=_cases(),
    base=base_case(
        "NystraWindowOverlap", {**SIZES, "margin_h": 2, "margin_w": 2, "bias": 1}, 19 * 19
    ),
    changes={"scale": CHANGES["scale"]} | BIAS_CHANGE,
    attributes={**GOOD_SIZES, "margin_h": 2, "margin_w": 1, "bias": 1},
    shapes=[QKV, (19 * 9, 2)],
    open_node=open_node(19 * 9),
)
