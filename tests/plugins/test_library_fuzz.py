"""Random nodes and inputs for every operator in a separate process: a crash is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from native_nodes import NODES, library

PROGRAM = Path(__file__).with_name("library_fuzz.py")


@pytest.mark.parametrize(
    "examples",
    [pytest.param(30, marks=pytest.mark.full), pytest.param(150, marks=pytest.mark.release)],
)
def test_any_node_runs_or_is_refused(examples: int, tmp_path: Path) -> None:
    library()
    log = tmp_path / "example.txt"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(PROGRAM), str(examples), str(log)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (
        f"{done.stdout}exit {done.returncode} at the next operator's example\n"
        f"{log.read_text() if log.exists() else 'none'}\n"
        f"{done.stderr[-6000:]}"
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(NODES)
