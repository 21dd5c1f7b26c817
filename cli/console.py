"""Printing: the one place where text reaches the terminal, without control characters.

Names, keys and metadata come from files that others made. A colour code, a line break or a mark
that turns the direction of writing would let a file write over what nystra says about it.
"""

from __future__ import annotations

import sys
from typing import TextIO


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
    """Print one line on stderr."""
    print(printable(" ".join(text.splitlines())), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    r"""Return text with what has no glyph of its own written as ``\x1b``; a tab stays."""
    if text.isprintable():
        return text
    return "".join(char if char == "\t" or char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if char == "\N{NO-BREAK SPACE}":
        return " "
    return char.encode("unicode_escape").decode("ascii")
