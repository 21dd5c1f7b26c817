"""Every row of the conformance table on every column."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from conformance_case import Case
from conformance_cases import CASES, KINDS, expected
from conformance_columns import COLUMNS, Column, is_long
from conformance_fields import compare as compare_fields
from conformance_fields import true_scores
from conformance_models import node_model, run_poisoned, session
from conformance_tolerance import TOLERANCES, allowed, check, compare, plain
from later import full, one_in
from nystra.core.errors import NystraError
from nystra.plugins.operators import OPERATORS, find_schema, functions
from operator_tests import find_reference, find_tests
from operators.patch_match import PatchMatchCase

GOOD = [case for case in CASES if not case.refused_by]
REFUSED = [case for case in CASES if case.refused_by]


def by_id(cases: list[Case]) -> pytest.MarkDecorator:
    """Rows without columns."""
    rows = [
        pytest.param(case, marks=[pytest.mark.full] if is_long(case) else [], id=case.id)
        for case in cases
    ]
    return pytest.mark.parametrize("case", rows)


def available(column: Column) -> Column:
    if reason := column.missing():
        pytest.skip(reason)
    return column


PAIRS = [(case, column) for case in GOOD for column in COLUMNS if column.dtypes(case)]


def on_columns(pairs: list[tuple[Case, Column]]) -> pytest.MarkDecorator:
    """Rows of columns."""
    return pytest.mark.parametrize(
        ("case", "column"),
        [
            pytest.param(
                case,
                column,
                marks=column.marks(case),
                id=f"{case.id}-{column.name}",
            )
            for case, column in pairs
        ],
    )


@on_columns(PAIRS)
def test_row(case: Case, column: Column) -> None:
    available(column)
    for dtype in column.dtypes(case):
        got = column.run(case, dtype)
        if isinstance(got, Exception):
            raise got
        compare(case, dtype, column.family, got)


REFUSALS = [
    (case, column)
    for case in REFUSED
    for column in COLUMNS
    if column.family in case.refused_by and column.dtypes(case)
]  # a body cannot refuse, and a torch op has no revision


@on_columns(REFUSALS)
def test_refused_row(case: Case, column: Column) -> None:
    available(column)
    for dtype in column.dtypes(case):
        outcome = column.run(case, dtype)
        assert isinstance(outcome, Exception), f"{column.name} took {case.id}"
        assert case.operator in str(outcome), outcome


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.id)
def test_the_reference_refuses(case: Case) -> None:
    with pytest.raises(NystraError):
        expected(case, "float32")


@by_id(GOOD)
def test_plain_torch_in_float64_is_the_reference(case: Case) -> None:
    want, got = expected(case, "float32"), plain(case, "float32", torch.float64)
    if isinstance(case, PatchMatchCase):
        rounded = (got[0], got[1].astype(np.float32))
        compare_fields(case, rounded, want, "float32", arithmetic="float64")
        return
    assert isinstance(want, np.ndarray)
    assert isinstance(got, np.ndarray)
    largest = float(np.nanmax(np.abs(want), initial=0.0))
    limit = 1e-11 if case.values in ("large", "huge") else 1e-12
    check(got, want, limit * largest)


def test_every_operator_is_complete() -> None:
    for name, folder in OPERATORS.items():
        schema = find_schema(name)
        assert schema.name == name
        assert schema.attributes[-1].name == "revision"
        for part in ("torch_op", "body"):
            importlib.import_module(f"nystra.plugins.operators.{folder}.{part}")
        assert find_reference(name)
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
    judged = {(column.family, dtype) for case, column in PAIRS for dtype in column.dtypes(case)}
    assert judged <= set(TOLERANCES)


def test_rows_are_unique() -> None:
    assert len({case.id for case in CASES}) == len(CASES)


@by_id([case for case in GOOD if not isinstance(case, PatchMatchCase)])
def test_negative_control(case: Case) -> None:
    """One entry that is off by 1 % of the largest value, or is missing, fails."""
    want = expected(case, "float32")
    assert isinstance(want, np.ndarray)
    bound = allowed(case, "float32", "body")
    wrong = want.copy()
    place = tuple(np.argwhere(~np.isnan(want))[-1])
    wrong[place] += 0.2 * np.nanmax(np.abs(want)) or 1.0
    with pytest.raises(AssertionError, match="max error"):
        check(wrong, want, bound)
    wrong[place] = np.nan
    with pytest.raises(AssertionError, match="NaN"):
        check(wrong, want, bound)


FIELDS = [case for case in GOOD if isinstance(case, PatchMatchCase)]


@pytest.mark.parametrize(
    "case", [field for field in FIELDS if field.exact], ids=lambda case: case.id
)
def test_negative_control_of_exact_fields(case: PatchMatchCase) -> None:
    """One wrong entry fails."""
    want = expected(case, "float32")
    good = (want[0], want[1].astype(np.float32))
    compare_fields(case, good, want, "float32")
    index, score = (array.copy() for array in good)
    place = tuple(np.argwhere(index >= -1)[-1])
    index[place] += 1
    with pytest.raises(AssertionError, match="index: 1 of"):
        compare_fields(case, (index, good[1]), want, "float32")
    score[place] = np.nextafter(score[place], np.float32(np.inf))
    with pytest.raises(AssertionError, match="score: 1 of"):
        compare_fields(case, (good[0], score), want, "float32")


@pytest.mark.parametrize(
    "case", [field for field in FIELDS if not field.exact], ids=lambda case: case.id
)
def test_negative_control_of_fields(case: PatchMatchCase) -> None:
    """Each kind of wrong entry in a field fails and is named."""
    want = expected(case, "float32")
    good = (want[0], want[1].astype(np.float32))
    compare_fields(case, good, want, "float32")
    keys = np.isfinite(want[1]).sum(1)
    b, y, x = np.argwhere(keys >= 2)[0]  # a pixel with two keys
    first, last = (b, 0, y, x), (b, keys[b, y, x] - 1, y, x)
    lower = good[1][last] - max(1e-3, 1e-3 * abs(good[1][last]))
    mask = np.broadcast_to(case.inputs("float32")[3], (case.shape[0], 1, *case.key))
    masked = np.flatnonzero(~(mask[b] > 0))
    changes = [
        ("stands twice", last, good[0][first], good[1][last]),
        ("empty entries", last, -1, -np.inf),
        ("not sorted", first, good[0][first], lower),
        ("not that of its index", last, good[0][last], lower),
        *(("masked key", last, key, good[1][last]) for key in masked[:1]),
    ]
    for message, place, key, number in changes:
        index, score = (array.copy() for array in good)
        index[place], score[place] = key, number
        with pytest.raises(AssertionError, match=message):
            compare_fields(case, (index, score), want, "float32")


def test_negative_control_of_quality() -> None:
    """A consistent field that was not searched for fails."""
    case = next(field for field in FIELDS if not field.exact and field.masks == "none")
    want = expected(case, "float32")
    size, keys = want[0][:, 0].size, int(np.prod(case.key))
    rng = np.random.default_rng(0)
    rows = np.array([rng.permutation(keys)[: want[0].shape[1]] for _ in range(size)])
    index = rows.reshape(*want[0][:, 0].shape, -1).transpose(0, 3, 1, 2).astype(np.int32)
    score, _ = true_scores(case, index, "float32", "float32")
    order = np.argsort(-score, axis=1)
    field = (
        np.take_along_axis(index, order, 1),
        np.take_along_axis(score, order, 1).astype(np.float32),
    )
    with pytest.raises(AssertionError, match="mean score"):
        compare_fields(case, field, want, "float32")


@pytest.mark.parametrize(
    ("name", "changed"),
    one_in(3, [(name, changed) for name in OPERATORS for changed in find_tests(name).changes]),
)
def test_body_reads_every_attribute(name: str, changed: str) -> None:
    """Another value changes the body's result to that of the reference."""
    tests = find_tests(name)
    base = tests.base
    other = replace(base, attributes={**base.attributes, **tests.changes[changed]})
    arrays = base.inputs("float32")
    reference = find_reference(name)
    want, moved = (reference(*arrays, **case.all_attributes()) for case in (base, other))
    got = run_poisoned(session(node_model(other)), arrays, other.output_shapes())
    if isinstance(other, PatchMatchCase):
        compare_fields(other, tuple(got), moved, "float32")
        with pytest.raises(AssertionError, match=r"index|shapes"):
            compare_fields(other, tuple(got), want, "float32")
        return
    bound = 2e-4 * np.abs(want).max()
    check(got[0], moved, bound)
    with pytest.raises(AssertionError, match="max error"):
        check(got[0], want, bound)


@pytest.mark.parametrize("opset", [18, *full(19, 20)])
@pytest.mark.parametrize("name", OPERATORS)
def test_two_nodes_that_differ_in_every_attribute(name: str, opset: int) -> None:
    """One body serves both, since onnxruntime keeps one per name."""
    rows = [case for case in GOOD if case.operator == name and case.values in ("normal", "integer")]
    first = rows[0]
    second = max(
        rows,
        key=lambda case: sum(
            value != first.all_attributes()[key] for key, value in case.all_attributes().items()
        ),
    )
    arrays = [*first.inputs("float32"), *second.inputs("float32")]
    runner = session(node_model(first, second, opset=opset), planned=True)
    shapes = [*first.output_shapes(), *second.output_shapes()]
    gots = run_poisoned(runner, arrays, shapes)
    half = len(gots) // 2
    for case, got in ((first, gots[:half]), (second, gots[half:])):
        compare(case, "float32", "body", got[0] if half == 1 else tuple(got))


@by_id([case for case in GOOD if case.operator == "NystraWindowSoftmax" and not case.large])
def test_exact_attention_by_rows_of_queries(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """As files with large windows compute it: here in small ones."""
    monkeypatch.setattr(functions, "LARGE_WINDOW", 1)
    (body,) = node_model(case).functions
    assert "Loop" in {node.op_type for node in body.node}
    arrays = case.inputs("float32")
    (got,) = run_poisoned(session(node_model(case)), arrays, case.output_shapes())
    compare(case, "float32", "body", got)
