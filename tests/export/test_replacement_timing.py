"""How many runs decide whether a replacement pays."""

from collections.abc import Iterator

import pytest

from nystra.export.replacement_timing import _enough


def rounds_until(ratios: Iterator[float], limit: float, seconds: float = 0.001) -> int:
    """Return after how many rounds of such ratios the runs end."""
    first: list[float] = []
    second: list[float] = []
    while not _enough((first, second), seconds * len(first), limit):
        first.append(1.0)
        second.append(next(ratios))
    return len(first)


def repeated(*ratios: float) -> Iterator[float]:
    while True:
        yield from ratios


@pytest.mark.parametrize("ratio", [0.5, 1.4])
def test_a_clear_ratio_takes_the_fewest_runs(ratio: float) -> None:
    assert rounds_until(repeated(ratio), 0.9) == 5


@pytest.mark.parametrize("ratio", [0.85, 0.95])
def test_a_ratio_near_the_limit_takes_the_most_runs(ratio: float) -> None:
    assert rounds_until(repeated(ratio), 0.9) == 40


def test_runs_that_disagree_go_on() -> None:
    """The shortest times say that it pays, the median that it does not."""
    assert rounds_until(repeated(1.5, 0.6, 1.5), 0.9) == 40


def test_slow_runs_end_by_time() -> None:
    assert rounds_until(repeated(0.9), 0.9, seconds=1.0) == 5
    assert rounds_until(repeated(0.9), 0.9, seconds=5.0) == 3
