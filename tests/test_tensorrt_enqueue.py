"""The conformance table through the plugins' enqueue, on a GPU; skipped where there is none.

The conformance host runs every row on guarded device buffers, twice: as a call and as the replay of
a captured graph, which must give the same bytes.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from conformance_case import Case, Outputs
from conformance_cases import CASES
from conformance_tolerance import compare
from nystra.plugins.operators import find_schema
from tensorrt_tools import plugins


def _host(*more: str) -> subprocess.CompletedProcess[str]:
    library = plugins()
    host = library.with_name("nystra_trt_host")
    if not host.is_file():
        pytest.skip(f"no {host}: build with NYSTRA_TENSORRT_TESTS=ON")
    command = [str(host), str(library), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _line(word: str, kind: str, array: np.ndarray | tuple[int, ...]) -> str:
    shape = array.shape if isinstance(array, np.ndarray) else array
    return " ".join([word, kind, *map(str, shape)])


def _write(folder: Path, name: str, case: Case, dtype: str) -> list[str]:
    """Write a row's inputs; return its lines of cases.txt."""
    schema = find_schema(case.operator)
    lines = [f"case {name} {case.operator} {dtype}"]
    for attribute in schema.attributes:
        value = case.all_attributes()[attribute.name]
        lines.append(f"{attribute.kind} {attribute.name} {value}")
    for place, (of, array) in enumerate(zip(schema.inputs, case.inputs(dtype), strict=True)):
        lines.append(_line("in", "I" if of in schema.int32 else "T", array))
        (folder / f"{name}.in{place}").write_bytes(np.ascontiguousarray(array).tobytes())
    for of, shape in zip(schema.outputs, case.output_shapes(), strict=True):
        lines.append(_line("out", "I" if of in schema.int32 else "T", shape))
    return [*lines, "end"]


def _read(folder: Path, name: str, case: Case, dtype: str) -> Outputs | str:
    refused = folder / f"{name}.refused"
    if refused.exists():
        return refused.read_text()
    schema = find_schema(case.operator)
    results = []
    for place, (of, shape) in enumerate(zip(schema.outputs, case.output_shapes(), strict=True)):
        kind = "int32" if of in schema.int32 else dtype
        data = (folder / f"{name}.out{place}").read_bytes()
        results.append(np.frombuffer(data, np.dtype(kind)).reshape(shape))
    return results[0] if len(results) == 1 else tuple(results)


@functools.cache
def _outcomes() -> tuple[str, dict[tuple[int, str], Outputs | str]]:
    """What the host printed, and what every row gave in every type."""
    with tempfile.TemporaryDirectory(prefix="nystra-") as name:
        folder, lines, rows = Path(name), [], {}
        for row, case in enumerate(CASES):
            for dtype in case.dtypes:
                rows[row, dtype] = f"{row}_{dtype}"
                lines += _write(folder, f"{row}_{dtype}", case, dtype)
        (folder / "cases.txt").write_text("\n".join(lines))
        done = _host("--enqueue", name, name)
        if done.returncode:
            return done.stdout + done.stderr, {}
        found = {key: _read(folder, of, CASES[key[0]], key[1]) for key, of in rows.items()}
        return done.stdout, found


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    """Skip where the host finds no GPU."""
    without = _host("--enqueue", "/nowhere", "/nowhere")
    if without.returncode == 3:
        pytest.skip(f"no GPU here: {without.stdout.strip()}")


@pytest.mark.parametrize("row", range(len(CASES)), ids=[case.id for case in CASES])
def test_row(row: int) -> None:
    words, found = _outcomes()
    assert found, words
    case = CASES[row]
    for dtype in case.dtypes:
        got = found[row, dtype]
        if case.refused_by:
            assert isinstance(got, str), f"{case.id} was taken"
            assert case.operator in got
        else:
            assert not isinstance(got, str), got
            compare(case, dtype, "emulator", got)
