"""Protobuf's text format, in which ``config.pbtxt`` is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Symbol(str):
    """A name of an enumeration, written without quotes: ``TYPE_FP32``."""


def text_format(message: Mapping[str, Any], indent: str = "") -> str:
    """Return a message as text, its fields in the order of the mapping.

    Args:
        message: Field -> value. A mapping is a message, a sequence a repeated field, a `Symbol` a
            name of an enumeration.
        indent: Put before every line.
    """
    return "".join(
        _field(name, value, indent) for name, values in message.items() for value in _each(values)
    )


def _each(values: Any) -> Sequence[Any]:
    """Return the values of a field: numbers stay together in one list, all others are repeated."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        return [values]
    return [values] if values and isinstance(values[0], int) else values


def _field(name: str, value: Any, indent: str) -> str:
    if isinstance(value, Mapping):
        return f"{indent}{name} {{\n{text_format(value, indent + '  ')}{indent}}}\n"
    if isinstance(value, Symbol):
        text: str = value
    elif isinstance(value, str):
        text = f'"{"".join(map(_escaped, value))}"'
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = str(list(value) if isinstance(value, Sequence) else value)
    return f"{indent}{name}: {text}\n"


def _escaped(letter: str) -> str:
    if letter in _ESCAPES or letter.isprintable():
        return _ESCAPES.get(letter, letter)
    return "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape"))
