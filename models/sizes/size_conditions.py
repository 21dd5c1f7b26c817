"""Records what code decides by sizes that are symbols."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_PACKAGE = Path(__file__).parents[2]
_KNOWN = tuple(
    f"{folder}/"
    for folder in (
        Path(torch.__file__).parent,
        *(_PACKAGE / name for name in ("core", "export", "models", "plugins")),
    )
)

_KINDS: tuple[Any, ...] = (torch.SymBool, torch.SymInt, torch.SymFloat)
_CONVERSIONS = ("__bool__", "__int__", "__index__", "__float__")


@dataclass(frozen=True)
class Condition:
    """An expression of sizes that code turned into a Python value.

    Attributes:
        expression: Of symbols.
        result: Its value for the example: a bool, or a number.
        where: File and line.
    """

    expression: Any
    result: bool | float
    where: str


@contextmanager
def recording() -> Iterator[list[Condition]]:
    """Record what code outside of PyTorch and nystra decides by the sizes of tensors."""
    found: list[Condition] = []
    methods = [
        (kind, name, vars(kind)[name])
        for kind in _KINDS
        for name in _CONVERSIONS
        if name in vars(kind)
    ]

    def recorded(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def converted(value: Any) -> Any:
            result = convert(value)
            frame = sys._getframe(1)
            file = frame.f_code.co_filename
            if not file.startswith(_KNOWN):
                where = f"{Path(file).name}, line {frame.f_lineno}"
                found.append(Condition(value.node.expr, result, where))
            return result

        return converted

    for kind, name, convert in methods:
        setattr(kind, name, recorded(convert))
    try:
        yield found
    finally:
        for kind, name, convert in methods:
            setattr(kind, name, convert)
