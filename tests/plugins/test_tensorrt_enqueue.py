"""The conformance table through the plugins' enqueue on a GPU; skipped without one.

Every row runs in float32, float16 and bfloat16, as on the block emulator.

The conformance host runs every row on guarded device buffers, twice: as a call and as the replay of
a captured graph, which must give the same bytes.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

import enqueue_table
from conformance_cases import CASES
from emulator_columns import gpu_types
from tensorrt_tools import plugins


def _host(*more: str) -> subprocess.CompletedProcess[str]:
    library = plugins()
    host = library.with_name("nystra_trt_host")
    if not host.is_file():
        pytest.skip(f"no {host}: build with NYSTRA_TENSORRT_TESTS=ON")
    command = [str(host), str(library), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


ROWS = sorted({row for row, _ in enqueue_table.rows()})


@functools.cache
def _outcomes() -> tuple[str, dict[enqueue_table.Row, dict[str, Any]]]:
    """What the host printed, and how every row was judged in every type."""
    with tempfile.TemporaryDirectory(prefix="nystra-") as name:
        folder, rows = Path(name), enqueue_table.rows()
        enqueue_table.write(folder, rows)
        done = _host("--enqueue", name, name)
        if done.returncode:
            return done.stdout + done.stderr, {}
        return done.stdout, {row: enqueue_table.judge(folder, row) for row in rows}


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    """Skip where the host finds no GPU."""
    without = _host("--enqueue", "/nowhere", "/nowhere")
    if without.returncode == 3:
        pytest.skip(f"no GPU here: {without.stdout.strip()}")


@pytest.mark.parametrize("row", ROWS, ids=[CASES[row].id for row in ROWS])
def test_row(row: int) -> None:
    words, outcomes = _outcomes()
    assert outcomes, words
    for dtype in gpu_types(CASES[row]):
        outcome = outcomes[row, dtype]
        assert outcome["ok"], outcome
