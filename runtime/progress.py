"""Progress bars on stderr, if it is a terminal."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def wants_bar(quiet: bool = False) -> bool:
    """Return whether a bar is shown: stderr is a terminal, not quiet, and CI is not set."""
    return not quiet and not os.environ.get("CI") and sys.stderr.isatty()


@contextmanager
def progress_bar(
    description: str, *, unit: str = "it", quiet: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that updates a bar; it does nothing if none is shown.

    The bar has no colors of its own, and with NO_COLOR set only ASCII characters.

    Args:
        description: The task, in a few words.
        unit: What is counted.
        quiet: Show nothing.
    """
    if not wants_bar(quiet):
        yield lambda done, total: None
        return
    from tqdm import tqdm

    with tqdm(desc=description, unit=unit, file=sys.stderr, ascii=_ascii(), leave=False) as bar:

        def move(done: int, total: int) -> None:
            bar.total = total
            bar.n = done
            bar.refresh()

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
