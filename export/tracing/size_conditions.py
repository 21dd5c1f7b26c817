"""Records what is decided by sizes that are symbols, by the code of a network or in PyTorch."""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch

from ...core.errors import TraceError
from ...models.own import tracing as own_tracing
from ...models.sizes import plain_run
from .torch_sizes import ShapeEnv
from .trace_fault import NYSTRA, TORCH, is_of_network

_CONVERSIONS = (f"{TORCH}__init__.py", f"{TORCH}fx/experimental/", str(own_tracing.__file__))
"""Files of what makes a Python value of a size."""

_BETWEEN = (str(plain_run.__file__),)
"""Files of nystra that stand between a network's code and PyTorch."""

_NUMBERS: tuple[Any, ...] = (torch.SymInt, torch.SymFloat, torch.SymBool)

_BITS: dict[str, tuple[str, Callable[[Any, int], Any] | None]] = {
    "__and__": ("&", lambda size, mask: size % (mask + 1)),
    "__rand__": ("&", lambda size, mask: size % (mask + 1)),
    "__lshift__": ("<<", lambda size, count: size * (1 << count)),
    "__rshift__": (">>", lambda size, count: size // (1 << count)),
    **dict.fromkeys(("__or__", "__ror__"), ("|", None)),
    **dict.fromkeys(("__xor__", "__rxor__"), ("^", None)),
    "__rlshift__": ("<<", None),
    "__rrshift__": (">>", None),
}
"""Operators of bits -> their sign, and what computes the same for masks of the lowest bits and for
numbers of places."""

_MESSAGES = re.compile(r"assert|check|debug|error|info|log|print|warn")
"""What is in the names of functions that take a message."""

_LONGEST = 80


@dataclass(frozen=True)
class Condition:
    """An expression of sizes of which a Python value was made.

    Attributes:
        expression: Of symbols, with a result of true or false.
        result: Its value for the example.
        where: The statement of the network's code that it belongs to, with file and line.
        is_own: Whether the network's code decides itself, rather than PyTorch.
        number: The value that the code takes for a size, or None if it decides by true or false.
    """

    expression: Any
    result: bool
    where: str
    is_own: bool
    number: float | None = None

    @property
    def asks_for_one(self) -> bool:
        """Whether it asks if a length is 1."""
        return isinstance(self.expression, (sympy.Eq, sympy.Ne)) and 1 in self.expression.args

    def names(self) -> set[str]:
        """Return the names of its symbols."""
        return set(list_symbols(self.expression))

    def rename(self, names: Mapping[Any, Any]) -> Condition:
        """Return the condition of other symbols."""
        expression = self.expression.xreplace(dict(names))
        return Condition(expression, self.result, self.where, self.is_own, self.number)


@lru_cache(maxsize=1 << 14)
def list_symbols(expression: Any) -> Mapping[str, Any]:
    """Return the symbols of an expression by name, in order of the names."""
    return {str(symbol): symbol for symbol in sorted(expression.free_symbols, key=str)}


@contextmanager
def record_conditions(where: str | None = None) -> Iterator[list[Condition]]:
    """Record what is decided by the sizes of tensors within a block.

    Args:
        where: The statement that all of it belongs to. None: it is the one that runs, and what
            nystra decides is left out.
    """
    conditions: list[Condition] = []
    evaluate = ShapeEnv.evaluate_expr

    def evaluate_and_record(env: Any, expression: Any, *arguments: Any, **named: Any) -> Any:
        result = evaluate(env, expression, *arguments, **named)
        if getattr(expression, "free_symbols", None):
            place = _place(sys._getframe(1)) if where is None else (where, False)
            if place is not None:
                conditions.append(_condition(expression, result, *place))
        return result

    environment: Any = ShapeEnv
    environment.evaluate_expr = evaluate_and_record
    try:
        with _without_texts(), _without_bits(), _with_solvable_remainders():
            yield conditions
    finally:
        environment.evaluate_expr = evaluate


@contextmanager
def _without_texts() -> Iterator[None]:
    """Raise `TraceError` where the code of a network makes a text of a size, but to print it.

    The text is that of a symbol, and what it decides is not seen.
    """
    before = {kind: kind.__repr__ for kind in _NUMBERS}

    def repr_of(number: Any) -> str:
        frame = sys._getframe(1)
        file, line = frame.f_code.co_filename, frame.f_lineno
        if is_of_network(file) and not _is_in_message(file, line):
            raise TraceError(
                f"the code of the network makes a text of a size ({_text(file, line)}): a file "
                "would hold what one text decides, so give `static` with a fixed size, or use the "
                "number"
            )
        return str(before[type(number)](number))

    for kind in _NUMBERS:
        kind.__repr__ = repr_of
    try:
        yield
    finally:
        for kind, own in before.items():
            kind.__repr__ = own


@contextmanager
def _without_bits() -> Iterator[None]:
    """Compute what operators of bits do with sizes by others, which ONNX has for numbers.

    Raises:
        TraceError: In the block, where there is no other one.
    """
    defined = vars(torch.SymInt)
    before = {name: defined[name] for name in _BITS if name in defined}

    def other_than(name: str) -> Any:
        sign, compute = _BITS[name]

        def compute_or_refuse(size: Any, number: Any) -> Any:
            is_number = type(number) is int and number >= 0
            if compute is not None and is_number and (sign != "&" or not number & (number + 1)):
                return compute(size, number)
            if not isinstance(number, (int, torch.SymInt)):
                return before[name](size, number)
            frame = sys._getframe(1)
            raise TraceError(
                f"the code of the network computes with the bits of a size by `{sign}` "
                f"({_text(frame.f_code.co_filename, frame.f_lineno)}): give `static` with a fixed "
                "size, or use `//`, `%` and `*`"
            )

        return compute_or_refuse

    for name in before:
        setattr(torch.SymInt, name, other_than(name))
    try:
        yield
    finally:
        for name, own in before.items():
            setattr(torch.SymInt, name, own)


@contextmanager
def _with_solvable_remainders() -> Iterator[None]:
    """Compute ``-size % number`` as ``(number - size % number) % number``.

    They are the same, but PyTorch finds no lengths for conditions on remainders of negative sizes.
    """
    symbolic: Any = torch.SymInt
    remainder = symbolic.__mod__

    def of_positive(size: Any, number: Any) -> Any:
        factor, _ = size.node.expr.as_coeff_Mul()
        is_negative = type(number) is int and number > 0 and factor < 0
        if not is_negative:
            return remainder(size, number)
        return remainder(number - remainder(-size, number), number)

    symbolic.__mod__ = of_positive
    try:
        yield
    finally:
        symbolic.__mod__ = remainder


def _is_in_message(file: str, line: int) -> bool:
    """Return whether a line belongs to a statement that only checks or says something."""
    enclosing = [
        statement for statement in _statements(file) if statement.lineno <= line <= _end(statement)
    ]
    if not enclosing:
        return False
    innermost = min(enclosing, key=lambda statement: _end(statement) - statement.lineno)
    if isinstance(innermost, ast.Expr) and isinstance(innermost.value, ast.Call):
        return bool(_MESSAGES.search(ast.unparse(innermost.value.func).lower()))
    return isinstance(innermost, (ast.Assert, ast.Raise))


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


@lru_cache(maxsize=16)
def _statements(file: str) -> list[ast.stmt]:
    """Return the statements of a file; none of one that is not there."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _condition(expression: Any, result: Any, where: str, is_own: bool) -> Condition:
    if result in (True, False, sympy.true, sympy.false) and _is_logical(expression):
        return Condition(expression, bool(result), where, is_own)
    number = float(result)
    return Condition(sympy.Eq(expression, result), True, where, is_own, number)


def _is_logical(expression: Any) -> bool:
    return isinstance(expression, sympy.logic.boolalg.Boolean)


def _place(frame: FrameType | None) -> tuple[str, bool] | None:
    """Return the statement of a network's code that is run, and whether it decides itself."""
    is_own = True
    while frame is not None:
        file = frame.f_code.co_filename
        if is_of_network(file):
            return _text(file, frame.f_lineno), is_own
        if not file.startswith(_CONVERSIONS):
            if file.startswith(NYSTRA) and not file.startswith(_BETWEEN):
                return None
            is_own = False
        frame = frame.f_back
    return None


def _text(file: str, line: int) -> str:
    code = linecache.getline(file, line).strip()[:_LONGEST]
    place = f"{Path(file).name}, line {line}"
    return f"`{code}`, {place}" if code else place
