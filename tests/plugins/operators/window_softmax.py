"""The tests' record of ``NystraWindowSoftmax``."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from conformance_case import EVERYWHERE, Case
from operator_tests import OperatorTests
from window_case import (
    BASE,
    BIAS_CHANGE,
    CHANGES,
    GOOD,
    QKV,
    WindowCase,
    base_case,
    open_node,
    window_row,
)


@dataclass(frozen=True)
class SoftmaxCase(WindowCase):
    """A row of exact attention."""

    @property
    def large(self) -> bool:
        return self.attributes["window_h"] * self.attributes["window_w"] >= 2304


def _cases() -> list[Case]:
    row = functools.partial(window_row, "NystraWindowSoftmax", biased=True, of=SoftmaxCase)
    return [
        row((1, 1, 1), (1, 1, 1), (1, 1)),
        row((1, 8, 8), (2, 10, 10), (8, 8), (4, 4), mask=1, bias=1),
        row((2, 16, 24), (2, 30, 30), (8, 8), (4, 4), mask=1, bias=1),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), mask=1, bias=1),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), mask=0, bias=1),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), mask=2, bias=1),
        row((3, 12, 12), (2, 5, 3), (4, 6), (2, 3), mask=1, bias=0),
        row((2, 12, 12), (2, 3, 5), (4, 6), (0, 5), mask=1, bias=1),
        row((1, 8, 12), (1, 32, 1), (4, 6), (3, 0), mask=1),
        row((1, 16, 16), (2, 1, 32), (16, 16), mask=1, bias=1),
        row((1, 9, 17), (2, 16, 17), (9, 17), bias=1),
        row((1, 4, 8), (1, 70, 131), (4, 8), (2, 4), mask=1, bias=1),
        row((1, 6, 6), (1, 128, 68), (6, 6)),
        row((1, 24, 24), (1, 6, 3), (24, 24), (12, 12), mask=1, bias=1),
        row((1, 24, 48), (1, 10, 3), (24, 48), dtypes=("float32",)),
        row((2, 6, 10), (2, 2, 2), (3, 5), (1, 2), mask=1, bias=1),
        row((1, 16, 8), (2, 16, 8), (8, 8), (0, 4), mask=1, bias=1),
        row((1, 10, 14), (1, 34, 48), (5, 7), (2, 3), mask=1, bias=1),
        row((1, 8, 16), (2, 64, 64), (8, 8), (4, 4), mask=1, bias=1),
        row((1, 16, 32), (1, 30, 30), (16, 16), (8, 8), mask=1, bias=1),
        row((1, 32, 32), (1, 4, 4), (32, 32), (16, 16), mask=1, bias=1),
        row((1, 36, 36), (1, 34, 34), (36, 36), dtypes=("float16",), bias=1),
        row((1, 48, 48), (1, 6, 3), (48, 48), (24, 24), mask=1, bias=1),
        row((1, 24, 24), (1, 6, 3), (24, 24), (12, 12), mask=2),
        row((1, 64, 64), (1, 2, 2), (64, 64), bias=1),
        row((1, 96, 96), (1, 2, 2), (96, 96)),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values="zero", mask=1, bias=1),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values="tiny", bias=1),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values="large", mask=1, bias=1),
        row((1, 8, 8), (2, 10, 10), (4, 4), values="huge"),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values="huge", mask=2, bias=1),
        row((2, 8, 8), (2, 10, 10), (4, 4), values="nan", bias=1),
        row((1, 8, 8), (2, 5, 5), (4, 4), (4, 0), refused_by=EVERYWHERE, dtypes=("float32",)),
        row((1, 9, 8), (2, 5, 5), (4, 4), refused_by=EVERYWHERE, dtypes=("float32",)),
    ]


TESTS = OperatorTests(
    cases=_cases(),
    base=base_case("NystraWindowSoftmax", {**BASE, "bias": 1}, 225),
    changes=CHANGES | BIAS_CHANGE,
    attributes={**GOOD, "bias": 1},
    shapes=[QKV, (15 * 7, 2)],
    open_node=open_node(15 * 7),
)
