"""Rows, valid nodes and changes that the tests of both cluster forms share."""

from __future__ import annotations

from collections.abc import Sequence

from conformance_case import Case
from operator_tests import OperatorTests
from window_case import BASE, BIAS_CHANGE, CHANGES, GOOD, QKV, base_case, open_node

_CLUSTERS = {"cluster_rows": 2, "cluster_cols": 4, "rounds": 0, "block": 2, "bias_block": 4}


def at(rows: int, cols: int, **rest: int | float) -> dict[str, int | float]:
    """Return the attributes of a row with clusters that begin in a grid."""
    return {"cluster_rows": rows, "cluster_cols": cols, **rest}


def cluster_tests(name: str, cases: Sequence[Case]) -> OperatorTests:
    """Return the tests' record of a form: its rows, and what both forms have."""
    return OperatorTests(
        cases=list(cases),
        base=base_case(name, {**BASE, **_CLUSTERS, "bias": 1}, 225),
        changes={
            **CHANGES,
            **BIAS_CHANGE,
            "cluster_rows": {"cluster_rows": 4},
            "cluster_cols": {"cluster_cols": 2},
            "rounds": {"rounds": 1},
            "block": {"block": 4},
            "bias_block": {"bias_block": 2},
        },
        attributes={
            **GOOD,
            "cluster_rows": 2,
            "cluster_cols": 2,
            "rounds": 1,
            "block": 2,
            "bias_block": 2,
            "bias": 1,
        },
        shapes=[QKV, (15 * 7, 2)],
        open_node=open_node(15 * 7),
    )
