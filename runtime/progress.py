"""A progress bar on stderr, where somebody can see it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def wants_bar(quiet: bool = False) -> bool:
    """Return whether a bar is shown: stderr is a terminal, not quiet, and CI is not set."""
    return not quiet and not os.environ.get("CI") and sys.stderr.isatty()


@contextmanager
def progress_bar(
    description: str, *, unit: str = "it", quiet: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that moves a bar; it does nothing where none is shown.

    The bar has no colours of its own, and with NO_COLOR set only ASCII characters.

    Args:
        description: What is going on, in a few words.
        unit: What is counted.
        quiet: Show nothing.
    """
    if not wants_bar(quiet):
        yield lambda done, total: None
        return
    from tqdm import tqdm

    ascii_only = True if os.environ.get("NO_COLOR") else None
    with tqdm(desc=description, unit=unit, file=sys.stderr, ascii=ascii_only, leave=False) as bar:

        def move(done: int, total: int) -> None:
            bar.total = total
            bar.n = done
            bar.refresh()

        yield move
