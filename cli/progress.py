"""The progress of a command."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator

from ..core.plain_text import printable
from .console import echo


@contextlib.contextmanager
def steps(args: argparse.Namespace, *, piped: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the present step.

    On a terminal it is one line with the time spent, and a bar if the step begins with ``3/14``;
    with ``-v``, and where stderr is piped if that is wanted, each step is a line of stderr.
    """
    from ..runtime.progress import step_bar, wants_bar

    if args.verbose or (piped and not args.quiet and not wants_bar()):
        yield lambda text: echo(text, file=sys.stderr, flush=True)
    elif not wants_bar(args.quiet):
        yield lambda _: None
    else:
        with step_bar() as show:
            yield lambda text: show(printable(text))
