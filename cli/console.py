"""Printing: the one place where text reaches the terminal, without control characters.

Names, keys and metadata come from files that others made. A color code, a line break or a mark
that turns the direction of writing would let a file write over what nystra says about it. Services
that run jobs read commands from the output: lines that begin with ``::`` (GitHub), ``##[...]``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from ..core.option import spell_names
from ..core.plain_text import printable

_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\w*\[)")
"""The sign that makes a command of a line or of a part of it."""


def echo(text: str = "", *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print one line, the options that it names as flags.

    Args:
        text: The line; see `printable` for its control characters and line breaks.
        file: Where to; None is stdout.
        flush: Do not wait for more.
    """
    _print(in_flags(text), file or sys.stdout, flush)


def echo_error(text: str) -> None:
    """Print one line on stderr, the options that it names as flags."""
    echo(" ".join(text.splitlines()), file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    echo_error(f"warning: {text}")


def print_json(document: Any) -> None:
    """Print a document as JSON on stdout; options in it keep their names."""
    for line in json.dumps(document, indent=1, sort_keys=True, default=str).split("\n"):
        _print(line, sys.stdout, flush=False)


def print_command(line: str, *, file: TextIO) -> None:
    """Print a command for the service that runs the job, which `echo` would spell out."""
    print(printable(line), file=file)


def _show_cell(cell: str) -> str:
    return printable(in_flags(cell))


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, the first row as the head."""
    rows = [list(map(_show_cell, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        echo("  ".join(cells).rstrip())


def set_flags(flag_of: Callable[[str], str | None]) -> None:
    """Set how the running command spells an option; None stands for other names."""
    global _flag_of
    _flag_of = flag_of


def in_flags(text: str) -> str:
    """Return a text of the library with the options that it names as flags of the command."""
    return spell_names(text, _flag_of)


def _print(line: str, file: TextIO, flush: bool) -> None:
    print(_COMMAND.sub(_escape, printable(line)), file=file, flush=flush)


def _escape(sign: re.Match[str]) -> str:
    return f"{sign[1] or ''}\\u{ord(sign[0][-1]):04x}"


def _no_flag(name: str) -> str | None:
    return None


_flag_of: Callable[[str], str | None] = _no_flag


@contextlib.contextmanager
def steps(args: argparse.Namespace, *, piped: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the present step.

    On a terminal it is one line with the time spent, and a bar if the step begins with ``3/14``.
    With ``-v``, and where stderr is piped if that is wanted, each step is a line of stderr.
    Elsewhere only a step that takes long has lines.
    """
    from ..runtime.progress import step_bar, step_lines, wants_bar

    stream = sys.stderr  # a trace redirects sys.stderr meanwhile

    def say(text: str) -> None:
        echo(text, file=stream, flush=True)

    if args.verbose or not wants_bar(args.quiet):
        each = args.verbose or (piped and not args.quiet)
        with step_lines(say, each=each, quiet=args.quiet and not args.verbose) as show_line:
            yield show_line
    else:
        with step_bar() as bar:
            yield lambda text: bar(printable(text))
