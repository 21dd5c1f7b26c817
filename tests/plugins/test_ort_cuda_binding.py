"""The CUDA binding of onnxruntime run by onnxruntime, on the emulated kernels: no GPU is involved.

That the CUDA provider runs it on a device is not shown here; docs/gpu.md lists what only a GPU
shows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import emulator_build
import ort_cuda_tools as tools
from conformance_case import Case
from conformance_cases import CASES
from conformance_tolerance import compare
from operator_tests import CUDA_OPERATORS, find_tests

pytestmark = pytest.mark.full  # its library takes long to compile

ROWS = [(case, dtype) for case in CASES for dtype in tools.dtypes(case) if not case.refused_by]
REFUSED = [(case, dtype) for case in CASES for dtype in tools.dtypes(case) if case.refused_by]


@pytest.fixture(autouse=True)
def emulator() -> None:
    if reason := emulator_build.missing():
        pytest.skip(reason)


def named(rows: list[tuple[Case, str]]) -> pytest.MarkDecorator:
    ids = [f"{case.id}-{dtype}" for case, dtype in rows]
    return pytest.mark.parametrize(("case", "dtype"), rows, ids=ids)


@named(ROWS)
def test_row(case: Case, dtype: str) -> None:
    got = tools.outcome(case, dtype)
    if isinstance(got, Exception):
        raise got
    compare(case, dtype, "emulator", got)


@named(REFUSED)
def test_refused_row(case: Case, dtype: str) -> None:
    outcome = tools.outcome(case, dtype)
    assert isinstance(outcome, Exception), f"took {case.id}"
    assert case.operator in str(outcome), outcome


def test_the_rows_are_a_good_part_of_the_table() -> None:
    cases = {case.id for case, _ in ROWS}
    rows = [case for case in CASES if case.operator in CUDA_OPERATORS and not case.refused_by]
    assert len(cases) > 0.7 * len(rows)
    for operator in CUDA_OPERATORS:
        types = {dtype for case, dtype in ROWS if case.operator == operator}
        assert types == {"float32", "float16", "bfloat16"}


def test_everything_is_given_back() -> None:
    in_use, allocators, handed_out = tools.outcomes()["use"]
    assert handed_out > 20  # rows whose kernels need a workspace
    assert (in_use, allocators) == (0, 0)


def test_the_tests_of_the_cpu_library_hold(tmp_path: Path) -> None:
    """The same refusals, empty maps and NaN as on the CPU: the checks are one code."""
    chosen = (
        f"(test_wrong or test_missing or test_zero or test_nan) and ({' or '.join(CUDA_OPERATORS)})"
    )
    tests = str(tools.ROOT / "tests" / "plugins" / "test_library.py")
    library = tools.build()
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    done = tools.child([*arguments, "-k", chosen], NYSTRA_LIBRARY_DIR=str(library.parent))
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 20
    assert "skipped" not in done.stdout


FAULTS = """
import sys
from pathlib import Path
import ort_cuda_tools as tools
from conformance_cases import CASES
library = Path(sys.argv[1])
for number in sys.argv[2:]:
    try:
        tools.run_case(library, CASES[int(number)], "float32")
        print(number, "ran")
    except Exception as error:
        print(number, " ".join(str(error).split()))
print("use", *tools.use(library)[:2])
"""


def _rows_with_workspace() -> list[int]:
    """The smallest row of every operator that fills its whole workspace."""
    chosen = {name: find_tests(name).fills_workspace for name in CUDA_OPERATORS}
    return [
        CASES.index(min(rows, key=lambda case: int(np.prod(case.shape))))
        for operator, fits in chosen.items()
        if fits is not None
        and (rows := [case for case, _ in ROWS if case.operator == operator and fits(case)])
    ]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("stream", "CUDA refused to launch the kernel"),
        ("no stream", "onnxruntime returned no CUDA stream"),
        ("workspace", "failed to free its device memory: a workspace was written beyond"),
        ("null workspace", "onnxruntime failed to allocate [0-9]+ bytes of device memory"),
        ("no memory", "onnxruntime failed to allocate [0-9]+ bytes of device memory: no memory"),
        ("throws", "Failed to allocate memory for requested buffer"),
        ("shape", "onnxruntime failed to allocate an output: .*shape"),
    ],
)
def test_planted_faults_are_caught(fault: str, message: str) -> None:
    rows = _rows_with_workspace()
    assert len(rows) == len(CUDA_OPERATORS)
    done = tools.child(["-c", FAULTS, str(tools.build()), *map(str, rows)], NYSTRA_FAULT=fault)
    assert done.returncode == 0, done.stderr
    *lines, use = done.stdout.splitlines()
    for row, line in zip(rows, lines, strict=True):
        with pytest.raises(RuntimeError, match=f"^{row} .*{CASES[row].operator}: .*{message}"):
            raise RuntimeError(line)
    left = len(rows) if fault == "null workspace" else 0  # which nobody can give back
    assert use == f"use {left} 0"


def test_without_a_planted_fault_they_run() -> None:
    rows = list(map(str, _rows_with_workspace()))
    done = tools.child(["-c", FAULTS, str(tools.build()), *rows])
    assert done.stdout.splitlines() == [f"{row} ran" for row in rows] + ["use 0 0"], done.stderr
