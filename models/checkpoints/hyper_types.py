"""Checking hyper-parameters against the annotations of a constructor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ...core.errors import NystraError
from ...core.json_text import is_number, is_whole

LARGEST = 1 << 20
"""The largest magnitude of an integer hyper-parameter."""

_LONGEST = 1000  # of a list
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def check_types(build: type, hyper: Mapping[str, Any], source: str) -> None:
    """Check hyper-parameters before a network is built.

    Args:
        build: A class whose constructor's annotations say what each may be; if it passes others on,
            so do those of its base.
        hyper: The arguments of the constructor.
        source: Name of the file, for messages.

    Raises:
        NystraError: One is unknown, of another type, not finite, or beyond any network's size.
    """
    hints = _hints(build)
    for key, value in hyper.items():
        if key not in hints:
            names = ", ".join(sorted(hints))
            raise NystraError(
                f"{source}: {build.__name__} has no hyper-parameter {key!r:.80}; it has: {names}"
            )
        if not _fits(value, hints[key]):
            raise NystraError(f"{source}: {key} is {value!r:.80}; expected {_describe(hints[key])}")


def _hints(build: type) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for kind in build.__mro__:
        if "__init__" not in vars(kind):
            continue
        constructor = vars(kind)["__init__"]
        own, parameters = get_type_hints(constructor), signature(constructor).parameters.values()
        other = (Parameter.POSITIONAL_ONLY, Parameter.VAR_KEYWORD)
        named = {one.name for one in parameters if one.kind not in other}
        hints = {name: own[name] for name in named & own.keys()} | hints
        if not any(one.kind is Parameter.VAR_KEYWORD for one in parameters):
            break
    return hints


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, kind) for kind in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is tuple:
        pair = isinstance(value, (list, tuple)) and len(value) == len(inner)
        return pair and all(map(_fits, value, inner))
    if origin is Sequence:
        if not isinstance(value, (list, tuple)) or not 0 < len(value) <= _LONGEST:
            return False
        return all(_fits(element, inner[0]) for element in value)
    if hint is NoneType:
        return value is None
    if hint is float:
        return is_number(value) and math.isfinite(value) and abs(value) <= LARGEST
    if hint is int:
        return is_whole(value) and abs(value) <= LARGEST
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_describe(kind) for kind in inner)
    if origin is Literal:
        return " or ".join(repr(kind) for kind in inner)
    if origin is tuple:
        return f"a list of {len(inner)}"
    if origin is Sequence:
        return f"a list, each {_describe(inner[0])}"
    if hint is NoneType:
        return "nothing"
    words = _WORDS.get(hint, getattr(hint, "__name__", str(hint)))
    return f"{words} of at most {LARGEST}" if hint in (int, float) else words
