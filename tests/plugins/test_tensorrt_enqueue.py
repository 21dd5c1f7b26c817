"""The conformance table through the plugins' enqueue, on a GPU; skipped where there is none.

Every row runs in float32, float16 and bfloat16, as on the block emulator.

The conformance host runs every row on guarded device buffers, twice: as a call and as the replay of
a captured graph, which must give the same bytes.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

import pytest

from conformance_case import Outputs
from conformance_cases import CASES
from conformance_tolerance import compare
from emulator_columns import gpu_types
from enqueue_files import read_row, write_row
from tensorrt_tools import plugins


def _host(*more: str) -> subprocess.CompletedProcess[str]:
    library = plugins()
    host = library.with_name("nystra_trt_host")
    if not host.is_file():
        pytest.skip(f"no {host}: build with NYSTRA_TENSORRT_TESTS=ON")
    command = [str(host), str(library), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@functools.cache
def _outcomes() -> tuple[str, dict[tuple[int, str], Outputs | str]]:
    """What the host printed, and what every row gave in every type."""
    with tempfile.TemporaryDirectory(prefix="nystra-") as name:
        folder, lines, rows = Path(name), [], {}
        for row, case in enumerate(CASES):
            for dtype in gpu_types(case):
                rows[row, dtype] = f"{row}_{dtype}"
                lines += write_row(folder, f"{row}_{dtype}", case, dtype)
        (folder / "cases.txt").write_text("\n".join(lines))
        done = _host("--enqueue", name, name)
        if done.returncode:
            return done.stdout + done.stderr, {}
        results = {key: read_row(folder, of, CASES[key[0]], key[1]) for key, of in rows.items()}
        return done.stdout, results


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    """Skip where the host finds no GPU."""
    without = _host("--enqueue", "/nowhere", "/nowhere")
    if without.returncode == 3:
        pytest.skip(f"no GPU here: {without.stdout.strip()}")


@pytest.mark.parametrize("row", range(len(CASES)), ids=[case.id for case in CASES])
def test_row(row: int) -> None:
    words, results = _outcomes()
    assert results, words
    case = CASES[row]
    for dtype in gpu_types(case):
        got = results[row, dtype]
        if case.refused_by:
            assert isinstance(got, str), f"{case.id} was taken"
            assert case.operator in got
        else:
            assert not isinstance(got, str), got
            compare(case, dtype, "emulator", got)
