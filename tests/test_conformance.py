"""Every row of the conformance table on every column."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from conformance_cases import CASES, KINDS, Case, expected
from conformance_columns import COLUMNS, Column
from conformance_models import node_model, run_poisoned, session
from conformance_tolerance import TOLERANCES, allowed, check, plain
from nystra.plugins.errors import NystraError
from nystra.plugins.operators import OPERATORS, find_schema

GOOD = [case for case in CASES if not case.refused_by]
REFUSED = [case for case in CASES if case.refused_by]
by_id = pytest.mark.parametrize("case", GOOD, ids=lambda case: case.id)


def available(column: Column) -> Column:
    if reason := column.missing():
        pytest.skip(reason)
    return column


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
@by_id
def test_row(case: Case, column: Column) -> None:
    available(column)
    for dtype in case.dtypes:
        got = column.run(case, dtype)
        if isinstance(got, Exception):
            raise got
        assert got.dtype == dtype
        check(got, expected(case, dtype), allowed(case, dtype, column.family))


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.id)
def test_refused_row(case: Case, column: Column) -> None:
    if column.family not in case.refused_by:
        return  # the body cannot refuse, and a torch op has no revision
    available(column)
    for dtype in case.dtypes:
        outcome = column.run(case, dtype)
        assert isinstance(outcome, Exception), f"{column.name} took {case.id}"
        assert case.operator in str(outcome), outcome


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.id)
def test_the_reference_refuses(case: Case) -> None:
    with pytest.raises(NystraError):
        expected(case, "float32")


@by_id
def test_plain_torch_in_float64_is_the_reference(case: Case) -> None:
    want = expected(case, "float32")
    largest = float(np.nanmax(np.abs(want), initial=0.0))
    limit = 1e-11 if case.values in ("large", "huge") else 1e-12
    check(plain(case, "float32", torch.float64), want, limit * largest)


def test_every_operator_is_complete() -> None:
    for name, folder in OPERATORS.items():
        schema = find_schema(name)
        assert schema.name == name
        assert schema.attributes[-1].name == "revision"
        for part in ("reference", "torch_op", "body"):
            importlib.import_module(f"nystra.plugins.operators.{folder}.{part}")
        assert hasattr(torch.ops.nystra, folder)
        rows = [case for case in GOOD if case.operator == name]
        assert {dtype for case in rows for dtype in case.dtypes} == {"float32", "float16"}
        assert {case.all_attributes().get("iterations", 1) for case in rows} >= (
            set(range(1, 9)) if "iterations" in rows[0].all_attributes() else set()
        )
        for attribute in schema.attributes[:-1]:
            used = {case.all_attributes()[attribute.name] for case in rows}
            assert len(used) > 1, f"{name}: no two rows differ in {attribute.name}"
    assert {case.values for case in CASES} == set(KINDS)
    assert {(column.family, d) for column in COLUMNS for d in ("float32", "float16")} == set(
        TOLERANCES
    )


def test_rows_are_unique() -> None:
    assert len({case.id for case in CASES}) == len(CASES)


@by_id
def test_negative_control(case: Case) -> None:
    """One entry that is off by 1 % of the largest value, or is missing, fails."""
    want = expected(case, "float32")
    if case.values in ("zero", "negative_zero") and not want.any():
        return
    bound = allowed(case, "float32", "body")
    wrong = want.copy()
    place = tuple(np.argwhere(~np.isnan(want))[-1])
    wrong[place] += 0.2 * np.nanmax(np.abs(want))
    with pytest.raises(AssertionError, match="max error"):
        check(wrong, want, bound)
    wrong[place] = np.nan
    with pytest.raises(AssertionError, match="NaN"):
        check(wrong, want, bound)


BASE: dict[str, int | float] = {
    "heads": 2,
    "head_dim": 5,
    "value_dim": 3,
    "window_h": 8,
    "window_w": 8,
    "shift_h": 4,
    "shift_w": 4,
    "mask": 1,
    "scale": 0.7,
}
LANDMARKS = {"landmark_rows": 2, "landmark_cols": 4, "iterations": 2, "batch_init": 0}
KERNEL = {"threshold": 1.0, "guard": 0.3}
CHANGES: dict[str, dict[str, int | float]] = {
    "heads": {"heads": 1, "head_dim": 10, "value_dim": 6},
    "window_h": {"window_h": 16, "shift_h": 8},
    "window_w": {"window_w": 4, "shift_w": 2},
    "shift_h": {"shift_h": 0},
    "shift_w": {"shift_w": 0},
    "mask": {"mask": 0},
    "bias": {"bias": 0},
    "scale": {"scale": 0.71},
    "landmark_rows": {"landmark_rows": 4},
    "landmark_cols": {"landmark_cols": 2},
    "iterations": {"iterations": 3},
    "batch_init": {"batch_init": 1},
    "threshold": {"threshold": 0.9},
    "guard": {"guard": 0.32},
}
OPERATOR_BASE: dict[str, dict[str, int | float]] = {
    "NystraPinv": {"iterations": 2, "batch_init": 0},
    "NystraWindowSoftmax": {**BASE, "bias": 1},
    "NystraWindowNystrom": {**BASE, **LANDMARKS, **KERNEL},
    "NystraWindowNystromformer": {**BASE, **LANDMARKS},
}


def base_case(name: str, **changes: int | float) -> Case:
    shape = (2, 3, 6, 6) if name == "NystraPinv" else (2, 16, 16, 26)
    table = (225, 2) if name == "NystraWindowSoftmax" else None
    return Case(name, {**OPERATOR_BASE[name], **changes}, shape, table, values="large")


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        (name, changed)
        for name, base in OPERATOR_BASE.items()
        for changed in CHANGES
        if changed in base and not (name == "NystraWindowSoftmax" and changed.startswith("window"))
    ],
)
def test_body_reads_every_attribute(name: str, changed: str) -> None:
    """Another value changes the body's result, and to what the reference says."""
    if name == "NystraWindowSoftmax" and changed == "heads":
        pytest.skip("the bias table has one column a head")
    base, other = base_case(name), base_case(name, **CHANGES[changed])
    arrays = base.inputs("float32")
    module = importlib.import_module(f"nystra.plugins.operators.{base.folder}.reference")
    want, moved = (module.reference(*arrays, **case.all_attributes()) for case in (base, other))
    got = run_poisoned(session(node_model(other)), arrays, [moved.shape])[0]
    bound = 2e-4 * np.abs(want).max()
    check(got, moved, bound)
    with pytest.raises(AssertionError, match="max error"):
        check(got, want, bound)


@pytest.mark.parametrize("opset", [18, 19, 20])
@pytest.mark.parametrize("name", OPERATORS)
def test_two_nodes_that_differ_in_every_attribute(name: str, opset: int) -> None:
    """One body serves both: onnxruntime keeps one a name."""
    rows = [case for case in GOOD if case.operator == name and case.values == "normal"]
    first = rows[0]
    second = max(
        rows,
        key=lambda case: sum(
            value != first.all_attributes()[key] for key, value in case.all_attributes().items()
        ),
    )
    arrays = [*first.inputs("float32"), *second.inputs("float32")]
    wants = [expected(case, "float32") for case in (first, second)]
    runner = session(node_model(first, second, opset=opset))
    gots = run_poisoned(runner, arrays, [want.shape for want in wants])
    for case, got, want in zip((first, second), gots, wants, strict=True):
        check(got, want, allowed(case, "float32", "body"))
