"""Texts of files that others made: which of them may be names, and how any text is shown."""

from __future__ import annotations

import re

LONGEST_NAME = 512

PLAIN_NAME = f"1 to {LONGEST_NAME} letters, digits, spaces and _ . : ; , / + - * = ~ ^ @ # ( ) [ ]"
"""What `is_plain_name` accepts, for messages."""

_SIGNS = r"\w .:;,/+*=~^@#()\[\]-"
_NAME = re.compile(f"[{_SIGNS}]+")
_LINE = re.compile(f"['&%!?|\xa9\xae{_SIGNS}]+")


def is_plain_name(text: str) -> bool:
    """Return whether a text may be a name: no quote, bracket of code or control character.

    Such a name is inert in a string of any language, in Markdown, HTML and a shell's quotes. It is
    not a safe path: no file is named after it.
    """
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def is_plain_line(text: str) -> bool:
    """Return whether a text is one line of words, such as a license: a name with more signs."""
    return len(text) <= LONGEST_NAME and _LINE.fullmatch(text) is not None


def printable(text: str) -> str:
    r"""Return text with what has no glyph of its own written as ``\x1b``; a tab stays."""
    if text.isprintable():
        return text
    return "".join(char if char == "\t" or char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    if char == "\N{NO-BREAK SPACE}":
        return " "
    return char.encode("unicode_escape").decode("ascii")
