"""Rows written for a GPU and read back without one: every row, every type, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conformance_case import Case
from conformance_cases import CASES, expected
from conformance_tolerance import compare
from emulator_columns import gpu_types
from enqueue_files import read_row, write_row
from operator_tests import CUDA_OPERATORS


def _smallest(operator: str) -> Case:
    rows = [case for case in CASES if case.operator == operator and not case.refused_by]
    exact = [case for case in rows if "bfloat16" in gpu_types(case)]
    return min(exact, key=lambda case: (case.values == "nan", np.prod(case.shape)))


def _answer(folder: Path, case: Case, dtype: str, factor: float = 1.0) -> None:
    """Write the output that a host would: the reference, rounded to the type."""
    want = expected(case, dtype)
    for place, array in enumerate(want if isinstance(want, tuple) else (want,)):
        index = np.issubdtype(array.dtype, np.integer)
        result = array.astype(np.int32) if index else (factor * array).astype(dtype)
        (folder / f"row.out{place}").write_bytes(result.tobytes())


def test_every_type_is_sent() -> None:
    for operator in CUDA_OPERATORS:
        sent = {dtype for case in CASES if case.operator == operator for dtype in gpu_types(case)}
        assert sent == {"float32", "float16", "bfloat16"}, operator


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("operator", CUDA_OPERATORS)
def test_a_row_goes_out_and_comes_back(operator: str, dtype: str, tmp_path: Path) -> None:
    case = _smallest(operator)
    lines = write_row(tmp_path, "row", case, dtype)
    assert lines[0] == f"case row {operator} {dtype}"
    size = 4 if dtype == "float32" else 2
    for place, line in enumerate(line for line in lines if line.startswith("in ")):
        kind, *shape = line.split()[1:]
        elements = int(np.prod([int(length) for length in shape]))
        assert (tmp_path / f"row.in{place}").stat().st_size == elements * (
            4 if kind == "I" else size
        )
    _answer(tmp_path, case, dtype)
    compare(case, dtype, "emulator", read_row(tmp_path, "row", case, dtype))
    _answer(tmp_path, case, dtype, factor=1.1)
    with pytest.raises(AssertionError):
        compare(case, dtype, "emulator", read_row(tmp_path, "row", case, dtype))
