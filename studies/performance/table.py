"""Command line and table of benchmarks that compare configurations."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bar:
    """A line of the table.

    Attributes:
        what: Is compared.
        slow: A configuration.
        fast: A configuration; ``:1`` behind its name: on one thread.
        limit: The ratio expected: at least that, or at most that if ``most``.
        most: See ``limit``.
    """

    what: str
    slow: str
    fast: str
    limit: float
    most: bool = False


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the command line: threads, rounds, the folder of the files, and which rows."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=Path, default=Path("build/bars"), metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=[""], metavar="NAME")
    return parser


def chosen(bars: Sequence[Bar], only: Sequence[str]) -> list[Bar]:
    """Return the rows with one of these texts in a configuration's name."""
    return [bar for bar in bars if any(name in bar.slow or name in bar.fast for name in only)]


def names(bars: Sequence[Bar]) -> list[str]:
    """Return the configurations of these rows, each once."""
    return list(dict.fromkeys(name for bar in bars for name in (bar.fast, bar.slow)))


def print_table(title: str, bars: Sequence[Bar], times: Mapping[str, Sequence[float]]) -> None:
    """Print the rows as a Markdown table.

    Args:
        title: What was timed on.
        bars: The rows.
        times: Configuration -> milliseconds of each round, in the order of the rounds.
    """
    print(f"\n{title}\n")
    print("| what | target | median ratio (least to most) | ms, slow / fast |")
    print("| --- | --- | --- | --- |")
    for bar in bars:
        print(_line(bar, times))
    print()


def _line(bar: Bar, times: Mapping[str, Sequence[float]]) -> str:
    slow, fast = times[bar.slow], times[bar.fast]
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    ratio = statistics.median(ratios)
    return (
        f"| {bar.what} | {'<' if bar.most else '>='} {bar.limit:g}x | {ratio:.2f}x "
        f"({min(ratios):.2f} to {max(ratios):.2f}) | {statistics.median(slow):.1f} / "
        f"{statistics.median(fast):.1f} |"
    )
