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

    On a terminal it is one line with the time spent, and a bar if the step begins with ``3/14``.
    With ``-v``, and where stderr is piped if that is wanted, each step is a line of stderr.
    Elsewhere only a step that takes long has lines.
    """
    from ..runtime.progress import step_bar, step_lines, wants_bar

    def say(text: str) -> None:
        echo(text, file=sys.stderr, flush=True)

    if args.verbose or not wants_bar(args.quiet):
        each = args.verbose or (piped and not args.quiet)
        with step_lines(say, each=each, quiet=args.quiet and not args.verbose) as show_line:
            yield show_line
    else:
        with step_bar() as bar:
            yield lambda text: bar(printable(text))
