"""Checks of the records that nystra keeps in JSON: keys, schema version, numbers.

`msgspec` was tried instead of these checks. Its messages have neither the value, nor the name of an
entry of a mapping (``$.items[...]``), nor the known keys, most rules here are not about types, and
its import takes 10 to 25 ms of every command.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeGuard

from .errors import NystraError

_LONGEST = 60


def shown(value: object) -> str:
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
            f"{where} is {shown(value)}, expected an object of schema_version {version}: {advice}"
        )
    got = value.get("schema_version")
    if not is_whole(got) or got != version:
        raise NystraError(
            f"{where} has the schema_version {shown(got)}, expected {version}: {advice}"
        )
    return value


def require_keys(
    value: object, where: str, known: Collection[str], required: Collection[str] = ()
) -> dict[str, Any]:
    """Return an object that has all required keys, and only known ones.

    Args:
        value: The decoded JSON.
        where: Its name in messages.
        known: Keys that it may have.
        required: Those that it must have.

    Raises:
        NystraError: It is not an object, or has other keys.
    """
    if not isinstance(value, dict):
        raise NystraError(f"{where} is {shown(value)}, expected an object of {', '.join(known)}")
    wrong = {
        "unknown": sorted(value.keys() - set(known)),
        "missing": sorted(set(required) - value.keys()),
    }
    if any(wrong.values()):
        texts = [f"{kind} keys {shown(keys)}" for kind, keys in wrong.items() if keys]
        raise NystraError(f"{where}: {', '.join(texts)}; expected are {', '.join(known)}")
    return value
