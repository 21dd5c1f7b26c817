"""Printing: the one place where text reaches the terminal, without control characters.

Names, keys and metadata come from files that others made. A colour code, a line break or a mark
that turns the direction of writing would let a file write over what nystra says about it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from ..core.option import spelled


def say(text: str = "", *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print text; line breaks stay, see `printable` for the rest.

    Args:
        text: What is said.
        file: Where to; None is stdout.
        flush: Do not wait for more.
    """
    lines = (printable(line) for line in text.split("\n"))
    print("\n".join(lines), file=file or sys.stdout, flush=flush)


def complain(text: str) -> None:
    """Print one line on stderr, the options that it names as flags."""
    print(printable(" ".join(in_flags(text).splitlines())), file=sys.stderr, flush=True)


def set_flags(flag_of: Callable[[str], str | None]) -> None:
    """Set how the command that runs spells an option; None is returned for what is no option."""
    global _flag_of
    _flag_of = flag_of


def in_flags(text: str) -> str:
    """Return a text of the library with the options that it names as flags of the command."""
    return spelled(text, _flag_of)


def printable(text: str) -> str:
    r"""Return text with what has no glyph of its own written as ``\x1b``; a tab stays."""
    if text.isprintable():
        return text
    return "".join(char if char == "\t" or char.isprintable() else _escaped(char) for char in text)


def _no_flag(name: str) -> str | None:
    return None


_flag_of: Callable[[str], str | None] = _no_flag


def _escaped(char: str) -> str:
    if char == "\N{NO-BREAK SPACE}":
        return " "
    return char.encode("unicode_escape").decode("ascii")
