"""JSON: written with the same bytes for the same content, and read with limits and checks.

Python's own reader accepts ``NaN``, turns ``1e999`` into infinity and ``10**400`` into a number
that no float holds, and raises RecursionError for deep nesting. A document that passes here has
finite numbers that fit into 64 bits, and no key twice in an object.

`msgspec` was tried instead of the checks of records. Its messages have neither the value, nor the
name of an entry of a mapping (``$.items[...]``), nor the known keys, most rules here are not about
types, and its import takes 10 to 25 ms of every command.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

from .errors import NystraError
from .files.kinds import HEAD, file_kind
from .files.reading import open_regular

PSNR_CAP = 200.0
"""The value in JSON of an infinite figure in dB, larger than float32 can reach."""


def json_number(value: float) -> float | None:
    """Return a number that JSON can hold.

    Args:
        value: Any number; an infinite one (the PSNR of equal images) becomes `PSNR_CAP` with
            its sign, NaN becomes None.
    """
    number = float(value)
    if math.isnan(number):
        return None
    if math.isinf(number):
        return math.copysign(PSNR_CAP, number)
    return number


def stable_json(value: Any) -> bytes:
    """Return UTF-8 JSON with sorted keys, two spaces of indent and a final newline.

    Tuples become lists, numpy scalars Python numbers, NaN null, infinities the cap of
    `json_number`, and texts what `utf8_text` returns.
    """
    text = json.dumps(
        _to_json(value), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False
    )
    return (text + "\n").encode("utf-8")


def utf8_text(text: str) -> str:
    r"""Return a text that UTF-8 can hold: bytes of a file name that are none become ``\xff``."""
    if text.isascii():
        return text
    data = text.encode("utf-8", "surrogatepass")
    with contextlib.suppress(UnicodeEncodeError):  # a surrogate that stands for no byte
        data = text.encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "backslashreplace")


def _to_json(value: Any) -> Any:
    if isinstance(value, str):
        return utf8_text(value)
    if isinstance(value, Mapping):
        return {utf8_text(str(key)): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return _to_json(value.item())
    if isinstance(value, float):
        return json_number(value)
    return value


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
            parse_int=_integer,
            object_pairs_hook=_distinct,
        )
        if _SURROGATE.search(content):
            json.dumps(value, ensure_ascii=False).encode()  # raises for a lone surrogate
        return value
    except ValueError as reason:
        kind = file_kind(text[:HEAD].encode() if isinstance(text, str) else text[:HEAD])
        why = f"it is {kind}" if kind else reason
        raise error(f"{where} is not valid JSON: {why}") from reason


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


def _integer(digits: str) -> int:
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


_LONGEST = 60


def quote(value: object) -> str:
    """Return a value as text for a message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number of JSON: ``true`` is not one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number of JSON: ``true`` is not one."""
    return isinstance(value, int) and not isinstance(value, bool)


def require_version(value: object, where: str, version: int, advice: str) -> dict[str, Any]:
    """Return a record of a schema version.

    Args:
        value: The decoded JSON.
        where: Its name in messages: ``the baseline /tmp/a.json``.
        version: The only ``schema_version`` that is read.
        advice: What to do about another one.

    Raises:
        NystraError: It is not an object, or of another version.
    """
    if not isinstance(value, dict):
        raise NystraError(
            f"{where} is {quote(value)}, expected an object of schema_version {version}: {advice}"
        )
    got = value.get("schema_version")
    if not is_whole(got) or got != version:
        raise NystraError(
            f"{where} has the schema_version {quote(got)}, expected {version}: {advice}"
        )
    return value


def require_keys(
    value: object, where: str, allowed: Collection[str], required: Collection[str] = ()
) -> dict[str, Any]:
    """Return an object that has all required keys, and only known ones.

    Args:
        value: The decoded JSON.
        where: Its name in messages.
        allowed: Keys that it may have.
        required: Those that it must have.

    Raises:
        NystraError: It is not an object, or has other keys.
    """
    if not isinstance(value, dict):
        raise NystraError(f"{where} is {quote(value)}, expected an object of {', '.join(allowed)}")
    wrong = {
        "unknown": sorted(value.keys() - set(allowed)),
        "missing": sorted(set(required) - value.keys()),
    }
    if any(wrong.values()):
        texts = [f"{kind} keys {quote(keys)}" for kind, keys in wrong.items() if keys]
        raise NystraError(f"{where}: {', '.join(texts)}; expected are {', '.join(allowed)}")
    return value
