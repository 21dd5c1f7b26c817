"""Recorded rows are replayed here, by Python and by the programs for machines without it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

import replay
from conformance_case import Case
from conformance_cases import CASES
from machines import REPLAY, compiled, run
from nystra.plugins.library import library_path
from recorded_rows import is_recorded, record


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some rows of each operator, in both types; all refused ones."""
    folder = tmp_path_factory.mktemp("rows") / "rows"
    record(folder, every=16)
    return folder


@pytest.mark.full
def test_by_python(rows: Path) -> None:
    printed = run(sys.executable, REPLAY, rows)
    assert printed.count(" rows agree") == 2


@pytest.mark.full
def test_what_is_off_is_reported(rows: Path) -> None:
    """A wrong number, and a row that should have been refused."""
    good = [row for row in replay.read(rows) if not row.refused]
    for row in good:
        assert replay.fault(row, replay.by_interface) is None
    for row in good:
        output = row.outputs[-1]
        output.values = output.values + 2 * output.bound + 1e-3
        assert "off by" in str(replay.fault(row, replay.by_interface)), row.name
    good[0].refused = True
    assert replay.fault(good[0], replay.by_interface) == "was not refused"


def test_searches_of_reals_alone_are_left_out() -> None:
    left: list[Case] = [case for case in CASES if not is_recorded(case) and not case.refused_by]
    assert {case.operator for case in left} == {"NystraPatchMatch"}
    assert len(left) < len(CASES) / 10


def onnxruntime_library() -> Path:
    """The shared library inside the installed onnxruntime."""
    spec = importlib.util.find_spec("onnxruntime")
    assert spec is not None
    assert spec.origin is not None
    found = sorted(Path(spec.origin).parent.glob("capi/libonnxruntime.so.*"))
    if not found:
        pytest.skip("this onnxruntime has no shared library for C programs")
    return found[0]


@pytest.mark.full
@pytest.mark.parametrize("program", ["replay_kernels", "replay_models"])
def test_by_programs(program: str, rows: Path, tmp_path: Path) -> None:
    """Wrong expected numbers are reported, with exit code 1."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    built = compiled(["g++"], program, tmp_path, "-ldl")
    if program == "replay_kernels":
        words = [built, library_path("nystra_cpu")]
    else:
        words = [built, onnxruntime_library(), library_path()]
    printed = run(*words, rows)
    count = len(replay.read(rows))
    assert f"{count} of {count} rows agree" in printed
    wrong = tmp_path / "wrong"
    shutil.copytree(rows, wrong)
    listed = (wrong / "rows.txt").read_text().splitlines()
    first = next(place for place, line in enumerate(listed) if line.startswith("output"))
    words_of_line = listed[first].split("\t")
    words_of_line[3] = "0"  # the first numbers of the file, which are an input
    listed[first] = "\t".join(words_of_line)
    (wrong / "rows.txt").write_text("\n".join(listed) + "\n")
    with pytest.raises(AssertionError, match=f"{count - 1} of {count} rows agree"):
        run(*words, wrong)
