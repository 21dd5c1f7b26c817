"""The tests' record of ``NystraWindowNystrom``."""

from __future__ import annotations

import functools

from conformance_case import Case
from landmark_case import (
    GOOD_LANDMARKS,
    LANDMARK_BASE,
    LANDMARK_CHANGES,
    LandmarkCase,
    landmark_rows,
)
from operator_tests import OperatorTests
from window_case import QKV, base_case, open_node, window_row


def _own() -> list[Case]:
    row = functools.partial(window_row, "NystraWindowNystrom", of=LandmarkCase)
    landmarks = {"landmark_rows": 4, "landmark_cols": 4}
    few = {"landmark_rows": 3, "landmark_cols": 5}
    large = functools.partial(row, dtypes=("float32",))  # and bfloat16, in tiles from 1,024 tokens
    return [
        row((2, 16, 8), (2, 10, 10), (8, 8), (4, 4), **landmarks, guard=0.0, mask=1, iterations=3),
        row((2, 16, 8), (2, 10, 10), (8, 8), **landmarks, guard=0.0, batch_init=1, iterations=2),
        row((2, 16, 8), (2, 10, 10), (8, 8), **landmarks, guard=0.1, threshold=0.0),
        row((2, 16, 8), (2, 10, 10), (8, 8), **landmarks, guard=0.5, threshold=2.5),
        row((1, 16, 8), (2, 10, 10), (8, 8), **landmarks, guard=0.3, values="large", iterations=2),
        row((1, 8, 8), (2, 10, 10), (4, 4), **landmarks, values="huge", iterations=2),
        row(
            (1, 8, 8), (2, 10, 10), (4, 4), landmark_rows=2, landmark_cols=2, values="negative_zero"
        ),
        large((1, 32, 32), (1, 5, 3), (32, 32), **few),
        large((1, 29, 37), (2, 16, 30), (29, 37), **few, guard=0.0),
        large((1, 32, 36), (1, 1, 32), (32, 36), landmark_rows=1, landmark_cols=1),
        large((2, 32, 32), (1, 30, 17), (32, 32), (16, 16), **landmarks, mask=1, batch_init=1),
        large((1, 32, 32), (1, 70, 64), (32, 32), **landmarks, guard=0.5, iterations=2),
        large((1, 32, 32), (2, 10, 10), (32, 32), values="large", **landmarks, guard=0.3),
        large((1, 32, 32), (1, 8, 8), (32, 32), values="tiny", **landmarks),
        large((1, 32, 64), (1, 8, 8), (32, 32), values="nan", **landmarks),
    ]


TESTS = OperatorTests(
    cases=[*landmark_rows("NystraWindowNystrom"), *_own()],
    base=base_case("NystraWindowNystrom", {**LANDMARK_BASE, "threshold": 1.0, "guard": 0.3}),
    changes=LANDMARK_CHANGES | {"threshold": {"threshold": 0.9}, "guard": {"guard": 0.32}},
    attributes=GOOD_LANDMARKS,
    shapes=[QKV],
    open_node=open_node(),
)
