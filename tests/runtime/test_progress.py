"""What takes long says so: with the time spent, and how much of it is done."""

from __future__ import annotations

import time

import numpy as np
import pytest

from nystra.runtime import progress
from nystra.runtime.checking.validation import validate_against_references
from nystra.runtime.model.references import ReferenceCase, References


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a step long after a second."""
    monkeypatch.setattr(progress, "LONG", 0.5)


@pytest.mark.full
def test_lines_of_a_step_that_takes_long(soon: None) -> None:
    lines: list[str] = []
    with progress.step_lines(lines.append, each=True) as show:
        show("2/9 find attention")
        time.sleep(1.3)
        show("3/9 trace")
    assert lines == ["2/9 find attention", "2/9 find attention (1 s so far)", "3/9 trace"]


@pytest.mark.full
def test_a_bar_that_nobody_sees(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = progress.progress_bar("a.png", quiet=True)
    with quiet, progress.progress_bar("a\x1b[2J.png", unit="tile") as move:
        move(1, 3)
        time.sleep(1.3)
    assert capsys.readouterr().err == "a\\x1b[2J.png: 1 of 3 tiles (1 s so far)\n"


@pytest.mark.full
def test_a_bar_shows_the_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "wants_bar", lambda quiet=False: True)
    with progress.progress_bar("a.png", unit="tile") as move:
        move(0, 3)
        time.sleep(1.3)
    assert "00:01" in capsys.readouterr().err


def test_a_comparison_counts_its_sizes() -> None:
    image = np.zeros((1, 3, 4, 6), np.float32)
    case = ReferenceCase({"input": image}, {"output": image})
    steps: list[str] = []
    twice = References((case, case), {"tolerances": [1e-4, 1e-4]})
    assert validate_against_references(lambda x: x, twice, progress=steps.append).passed
    assert steps == ["1/2 compare 4x6", "2/2 compare 4x6"]
