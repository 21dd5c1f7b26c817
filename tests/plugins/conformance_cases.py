"""The conformance table: the rows of every operator, run on every column of conformance_columns."""

from __future__ import annotations

import functools

from conformance_case import Case, Outputs
from conformance_store import stored
from nystra.plugins.operators import OPERATORS
from operator_tests import find_reference, find_tests

KINDS = (
    "normal",
    "zero",
    "negative_zero",
    "tiny",
    "large",
    "sharp",
    "huge",
    "nan",
    "equal_keys",
    "far_keys",
    "integer",
)


@functools.cache
def _expected(row: int, dtype: str) -> Outputs:
    case = CASES[row]

    def reference() -> Outputs:
        outputs: Outputs = find_reference(case.operator)(
            *case.inputs(dtype), **case.all_attributes()
        )
        return outputs

    return stored(f"{row}.{dtype}", reference)


def expected(case: Case, dtype: str) -> Outputs:
    """The output of the float64 reference for the row, its inputs rounded to ``dtype``."""
    return _expected(CASES.index(case), dtype)


CASES: list[Case] = [case for operator in OPERATORS for case in find_tests(operator).cases]
"""Every row of the conformance table."""
