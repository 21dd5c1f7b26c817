"""Tests that share slow fixtures run in one process; each test is in one of the shares."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import groups
import shares
from conformance_columns import COLUMNS
from shared import ROOT

_TESTS = """
import pytest

@pytest.mark.parametrize("case", [1, 2, 3, 4])
@pytest.mark.parametrize("column", ["one-a", "two"])
def test_row(case, column): pass
"""


def test_every_column_is_a_group() -> None:
    for column in COLUMNS:
        for test in ("test_row", "test_refused_row"):
            node = (
                f"tests/plugins/test_conformance.py::{test}[NystraPinv[2x3 huge a=1]-{column.name}]"
            )
            assert groups.group_of(node) == column.name
    other = (
        "tests/plugins/test_conformance.py::test_the_reference_refuses[NystraPinv[2x3 huge a=1]]"
    )
    assert groups.group_of(other) == "test_conformance.py"


def test_what_begins_first_exists() -> None:
    files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(groups.FIRST) <= files | {column.name for column in COLUMNS}


@pytest.mark.full
def test_a_group_stays_on_one_worker(tmp_path: Path) -> None:
    """With the installed versions of pytest and pytest-xdist."""
    pytest.importorskip("xdist")
    (tmp_path / "test_a.py").write_text(_TESTS.replace("one-a", "[]-one"))
    (tmp_path / "test_b.py").write_text(_TESTS)
    for file in (ROOT / "tests/conftest.py", Path(groups.__file__), Path(shares.__file__)):
        (tmp_path / file.name).write_text(file.read_text())
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider", "."]
    command += ["-p", "xdist.plugin"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others take seconds to load
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stdout
    ran = re.findall(r"\[(gw\d)\] .* PASSED (\S+)", done.stdout)
    assert len(ran) == 16
    assert {worker for worker, _ in ran} == {"gw0", "gw1"}
    workers: dict[str, set[str]] = {}
    for worker, node in ran:
        workers.setdefault(groups.group_of(node), set()).add(worker)
    assert all(len(those) == 1 for those in workers.values()), workers


def test_every_test_is_in_one_share() -> None:
    nodes = [f"tests/plugins/test_library.py::test_wrong_shape[{row}]" for row in range(400)]
    parts = [[node for node in nodes if shares.is_in(node, f"{part}/4")] for part in range(1, 5)]
    assert sorted(node for part in parts for node in part) == sorted(nodes)
    assert min(map(len, parts)) > 70
    assert all(shares.is_in(f"{shares.ALWAYS[0]}test_annotations", f"{part}/4") for part in (1, 2))
