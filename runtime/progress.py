"""Progress on stderr: bars if it is a terminal, else lines about what takes long."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

LONG = 10.0
"""Seconds between the lines of a step that takes long."""


def wants_bar(quiet: bool = False) -> bool:
    """Return whether a bar is shown: stderr is a terminal, not quiet, and CI is not set."""
    return not quiet and not os.environ.get("CI") and sys.stderr.isatty()


@contextmanager
def progress_bar(
    description: str, *, unit: str = "it", quiet: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that updates a bar, or the lines that stand for it.

    The bar has no colors of its own, and with NO_COLOR set only ASCII characters. It shows the time
    spent, each second.

    Args:
        description: The task, in a few words.
        unit: What is counted.
        quiet: Show nothing.
    """
    description = _printable(description)
    if not wants_bar(quiet):
        with step_lines(_print, each=False, quiet=quiet) as show:
            show(description)
            yield lambda done, total: show(f"{description}: {done} of {total} {unit}s", new=False)
        return
    from tqdm import tqdm

    with tqdm(desc=description, unit=unit, file=sys.stderr, ascii=_ascii(), leave=False) as bar:

        def move(done: int, total: int) -> None:
            bar.total = total
            bar.n = done
            bar.refresh()

        with _each_second(bar.refresh):
            yield move


_COUNTED, _UNCOUNTED = "{elapsed} |{bar:20}| {desc}", "{elapsed} {desc}"


@contextmanager
def step_bar() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step and the elapsed time.

    For a step that begins with ``3/14`` a bar shows the finished steps: two, while the third runs.
    """
    from tqdm import tqdm

    with tqdm(
        bar_format=_UNCOUNTED, file=sys.stderr, ascii=_ascii(), leave=False, dynamic_ncols=True
    ) as bar:

        def show(step: str) -> None:
            place = re.match(r"(\d+)/(\d+) ", step)
            bar.bar_format = _COUNTED if place else _UNCOUNTED
            if place:
                bar.n, bar.total = int(place[1]) - 1, int(place[2])
            bar.set_description_str(step)

        with _each_second(bar.refresh):
            yield show


class ShowStep(Protocol):
    """Takes the present step; the time of one that is not new goes on."""

    def __call__(self, step: str, *, new: bool = True) -> None:
        """Set the step."""


@contextmanager
def step_lines(
    write: Callable[[str], None], *, each: bool, quiet: bool = False
) -> Iterator[ShowStep]:
    """Yield a function that takes the present step; one that takes long has a line now and then.

    Args:
        write: Prints a line.
        each: Print a line at the beginning of each step, too.
        quiet: Print nothing.
    """
    if quiet:
        yield lambda step, *, new=True: None
        return
    name, begun, spoken = "", time.monotonic(), time.monotonic()

    def show(step: str, *, new: bool = True) -> None:
        nonlocal name, begun, spoken
        name = step
        if new:
            begun = spoken = time.monotonic()
            if each:
                write(step)

    def remind() -> None:
        nonlocal spoken
        now = time.monotonic()
        if name and now - spoken >= LONG:
            spoken = now
            write(f"{name} ({now - begun:.0f} s so far)")

    with _each_second(remind):
        yield show


def _print(line: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads it
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _printable(text: str) -> str:
    characters = (each if each.isprintable() else ascii(each)[1:-1] for each in text)
    return "".join(characters)


def _ascii() -> bool | None:
    return True if os.environ.get("NO_COLOR") else None


@contextmanager
def _each_second(action: Callable[[], object]) -> Iterator[None]:
    """Call something each second, in another thread, until the block is left."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(1.0):
            action()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
