"""The tests' record of ``NystraWindowCosine``."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

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
class CosineCase(WindowCase):
    """A row of attention by cosines; scores of the heads are multiplied by 4, 9, 14 and so on."""

    def inputs(self, dtype: str) -> list[np.ndarray]:
        scales = 4 + 5 * np.arange(self.attributes["heads"])
        return [*super().inputs(dtype), scales.astype(dtype)]


def _cases() -> list[Case]:
    row = functools.partial(
        window_row, "NystraWindowCosine", biased=True, of=CosineCase, scale=1.25
    )
    return [
        row((1, 1, 1), (1, 1, 1), (1, 1)),
        row((1, 8, 8), (2, 10, 10), (8, 8), (4, 4), mask=1, bias=1),
        row((2, 16, 24), (2, 30, 30), (8, 8), (4, 4), mask=1, bias=1),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), mask=1, bias=1),
        row((3, 12, 12), (2, 5, 3), (4, 6), (2, 3), mask=1, bias=0, scale=0.75),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), mask=2, bias=1),
        row((2, 12, 12), (2, 3, 5), (4, 6), (0, 5), mask=1, bias=1),
        row((1, 16, 16), (2, 1, 32), (16, 16), mask=1, bias=1),
        row((1, 9, 17), (2, 16, 17), (9, 17), bias=1, epsilon=4.0),
        row((1, 4, 8), (1, 70, 131), (4, 8), (2, 4), mask=1, bias=1),
        row((1, 6, 6), (1, 128, 68), (6, 6)),
        row((1, 24, 24), (1, 6, 3), (24, 24), (12, 12), mask=1, bias=1),
        row((1, 8, 16), (2, 64, 64), (8, 8), (4, 4), mask=1, bias=1),
        row((1, 16, 32), (1, 30, 30), (16, 16), (8, 8), mask=1, bias=1),
        row((1, 32, 32), (1, 4, 4), (32, 32), (16, 16), mask=1, bias=1),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values="zero", mask=1, bias=1),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values="tiny", bias=1),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values="large", mask=1, bias=1),
        row((1, 8, 8), (2, 10, 10), (4, 4), values="huge"),
        row((2, 8, 8), (2, 10, 10), (4, 4), values="nan", bias=1),
        row((1, 8, 8), (2, 5, 5), (4, 4), (4, 0), refused_by=EVERYWHERE, dtypes=("float32",)),
        row((1, 9, 8), (2, 5, 5), (4, 4), refused_by=EVERYWHERE, dtypes=("float32",)),
    ]


def _base() -> Case:
    case = base_case("NystraWindowCosine", {**BASE, "bias": 1}, 225)
    return CosineCase(case.operator, case.attributes, case.shape, case.table, case.values)


_OPEN = open_node(15 * 7)

TESTS = OperatorTests(
    cases=_cases(),
    base=_base(),
    changes=CHANGES | BIAS_CHANGE | {"epsilon": {"epsilon": 20.0}},
    attributes={**GOOD, "bias": 1},
    shapes=[QKV, (15 * 7, 2), (2,)],
    open_node=replace(_OPEN, inputs=[*_OPEN.inputs, (2,)]),
)
