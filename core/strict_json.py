"""Reads JSON of other programs with limits: size, depth, values, digits, and no NaN or infinity.

Python's own reader accepts ``NaN``, turns ``1e999`` into infinity and ``10**400`` into a number
that no float holds, and raises RecursionError for deep nesting. A document that passes here has
finite numbers that fit into 64 bits, and no key twice in an object.
"""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any

from .errors import NystraError
from .files.reading import open_regular

MAXIMUM_BYTES = 64 << 20
MAXIMUM_DEPTH = 64
MAXIMUM_VALUES = 2_000_000
"""Most values: each takes up to a hundred bytes, however few it has in the text."""

MAXIMUM_DIGITS = 18
"""Most digits of an integer: as many as fit into 64 bits."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[][{}]', re.DOTALL)


def read_json(
    path: str | os.PathLike[str], what: str, error: type[NystraError] = NystraError
) -> Any:
    """Read a JSON file.

    Args:
        path: The file.
        what: What it is, for the message: ``the baseline``.
        error: The class that is raised.

    Raises:
        NystraError: It is missing, no regular file, cannot be read, or see `parse_json`.
    """
    with open_regular(path, what, error) as stream:
        data = stream.read(MAXIMUM_BYTES + 1)
    return parse_json(data, f"{what} {path}", error)


def parse_json(text: str | bytes, where: str, error: type[NystraError] = NystraError) -> Any:
    """Parse JSON.

    Args:
        text: The JSON; bytes are UTF-8.
        where: What it is, for the message: ``the baseline /tmp/a.json``.
        error: The class that is raised.

    Raises:
        NystraError: It is longer than 64 MiB, not JSON, nested more than 64 deep, holds more than
            two million values, NaN, an infinity, a whole number of more than 18 digits, or a key
            twice.
    """
    if len(text) > MAXIMUM_BYTES:
        raise error(f"{where} is longer than {MAXIMUM_BYTES >> 20} MiB: nystra did not write it")
    try:
        content = text.decode("utf-8") if isinstance(text, bytes) else text
        if sum(map(content.count, ",[{")) > MAXIMUM_VALUES:
            raise ValueError(f"it holds more than {MAXIMUM_VALUES} values")
        _refuse_depth(content)
        value = json.loads(
            content,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_distinct,
        )
        if _SURROGATE.search(content):
            json.dumps(value, ensure_ascii=False).encode()  # raises for a lone surrogate
        return value
    except ValueError as reason:
        raise error(f"{where} is not valid JSON: {reason}") from reason


def _refuse_depth(text: str) -> None:
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        token = match[0]
        if token in "[{":
            depth += 1
            if depth > MAXIMUM_DEPTH:
                raise ValueError(f"nested more than {MAXIMUM_DEPTH} levels deep")
        elif token in "]}":
            depth -= 1


def _refuse_constant(name: str) -> None:
    raise ValueError(f"the number is {name}, expected a finite one")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:40]} is too large")
    return value


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > MAXIMUM_DIGITS:
        raise ValueError(
            f"a whole number of {len(digits)} digits, expected {MAXIMUM_DIGITS} or fewer"
        )
    return int(digits)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the key {name[:80]!r} occurs twice")
        members[name] = value
    return members
