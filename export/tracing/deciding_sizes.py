"""Finds sizes for which a condition decides otherwise than for an example."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor
from torch.export import ExportedProgram

from ...core.ports.port import AXES, SIDES, Port, Shape
from .size_conditions import Condition, list_symbols

_SIZES = (*range(1, 140), 160, 192, 224, 256, 257, 320, 384, 400, 448, 512, 513, 640, 768, 1024)
"""Lengths of an axis at which a condition is evaluated, besides those of its own numbers."""

_MOST_PIXELS, _FEW_PIXELS = 1 << 19, 1 << 15
"""Most elements of one channel of the inputs of a comparison: of a condition of the network's code,
and of one of PyTorch's."""

_MOST_IMAGES = 8
"""Most images of a batch of a comparison."""

_SMALL_SIDE = 16

_CACHE_SIZE = 1 << 17
"""Values of conditions that are kept: each condition is asked for at the same sizes again."""

_FUNCTIONS = {
    "CleanDiv": operator.floordiv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
}
"""PyTorch's functions of whole numbers, by the names of their classes."""

_EXACT = frozenset(
    (
        *_FUNCTIONS,
        "Add",
        "And",
        "Equality",
        "GreaterThan",
        "Integer",
        "LessThan",
        "Max",
        "Min",
        "Mul",
        "NegativeOne",
        "Not",
        "One",
        "Or",
        "StrictGreaterThan",
        "StrictLessThan",
        "Symbol",
        "Unequality",
        "Zero",
    )
)

Lengths = Mapping[str, int]
"""Length of each free axis by name."""


def _make_symbol(name: str) -> Any:
    return sympy.Symbol(name, integer=True, positive=True)


@dataclass(frozen=True)
class FreeAxes:
    """The free axes of the inputs of a program.

    Attributes:
        shapes: Of each input, of numbers and names of free axes.
        types: Of each input.
        symbols: Symbol of the program -> that of an axis, whose name it has.
        example: Lengths that the program was traced with.
        limits: Smallest and largest length of each.
    """

    shapes: tuple[tuple[int | str, ...], ...]
    types: tuple[torch.dtype, ...]
    symbols: Mapping[Any, Any]
    example: Lengths
    limits: Mapping[str, tuple[int, int]]

    @classmethod
    def of_inputs(cls, inputs: Sequence[Tensor], ports: Sequence[Port], minimum: int) -> FreeAxes:
        """Return those of examples of some ports, whose sides are at least as many pixels."""
        shapes: list[tuple[int | str, ...]] = []
        example: dict[str, int] = {}
        limits: dict[str, tuple[int, int]] = {}
        for tensor, port in zip(inputs, ports, strict=True):
            free = port.free_axes()
            for place, name in free.items():
                axis = port.axes[place]
                example[name] = tensor.shape[place]
                limits[name] = (minimum if axis in SIDES else 1, AXES[axis].largest)
            sides = enumerate(tensor.shape)
            shapes.append(tuple(free.get(place, length) for place, length in sides))
        symbols = {name: _make_symbol(name) for name in example}
        types = tuple(tensor.dtype for tensor in inputs)
        return cls(tuple(shapes), types, symbols, example, limits)

    @classmethod
    def of(cls, program: ExportedProgram, names: Sequence[Mapping[int, str]]) -> FreeAxes:
        """Return those of a program; ``names`` are those of the axes of each input by number."""
        names_of_inputs = set(program.graph_signature.user_inputs)
        nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
        of_inputs = [node for node in nodes if node.name in names_of_inputs]
        inputs: list[Tensor] = [node.meta["val"] for node in of_inputs]
        symbols: dict[Any, Any] = {}
        example: dict[str, int] = {}
        limits: dict[str, tuple[int, int]] = {}
        shapes = []
        for index, tensor in enumerate(inputs):
            named = names[index] if index < len(names) else {}
            shape: list[int | str] = []
            for axis, length in enumerate(tensor.shape):
                symbol = _symbol(length)
                if symbol is None:
                    shape.append(int(length))
                    continue
                name = named.get(axis, f"axis {axis} of input {index}")
                name = str(symbols.setdefault(symbol, _make_symbol(name)))
                node: Any = length.node  # type: ignore[attr-defined]
                example.setdefault(name, int(node.hint))
                limits.setdefault(name, _limits(program.range_constraints.get(symbol)))
                shape.append(name)
            shapes.append(tuple(shape))
        types = tuple(tensor.dtype for tensor in inputs)
        return cls(tuple(shapes), types, symbols, example, limits)

    def within(self, limits: Mapping[str, tuple[int, int]]) -> FreeAxes:
        """Return the same axes with other limits, by their names."""
        named = limits.items()
        applicable = {name: limit for name, limit in named if name in self.limits}
        return replace(self, limits={**self.limits, **applicable})

    def shapes_of(self, lengths: Lengths) -> list[Shape]:
        """Return the shapes of the inputs for some lengths."""
        shapes = []
        for shape in self.shapes:
            sides = [lengths[axis] if isinstance(axis, str) else axis for axis in shape]
            shapes.append(tuple(sides))
        return shapes

    def smallest(self) -> dict[str, int]:
        """Return small lengths: sides of 16 pixels, or more where that is required."""
        smallest = {}
        for name, (low, _) in self.limits.items():
            fixed = name == "batch" or low > 1
            smallest[name] = low if fixed else _SMALL_SIDE
        return smallest

    def elements(self, lengths: Lengths) -> int:
        """Return the elements of one channel of the inputs."""
        elements = 0
        for shape in self.shapes:
            free = [axis for axis in shape if isinstance(axis, str)]
            elements += math.prod(lengths[axis] for axis in free)
        return elements


def _symbol(length: Any) -> Any:
    expression = length.node.expr if isinstance(length, torch.SymInt) else None
    return expression if isinstance(expression, sympy.Symbol) else None


def _limits(limit: Any) -> tuple[int, int]:
    if limit is None:
        return 1, max(_SIZES)
    upper = 1 << 30
    if isinstance(limit.upper, sympy.Integer):
        upper = int(limit.upper)
    return max(1, int(limit.lower)), upper


def sizes_deciding_otherwise(
    condition: Condition,
    before: Sequence[Condition],
    axes: FreeAxes,
    start: Lengths,
    limit: int,
) -> list[dict[str, int]]:
    """Return lengths for which a condition has another result: the smallest, and larger ones.

    Args:
        condition: The condition.
        before: Those that are decided before it: they are decided as before where that can be.
        axes: The axes.
        start: Lengths for which it has its result.
        limit: Most lengths to return.
    """
    free = condition.names()
    own = [condition.names() for condition in before if condition.is_own]
    others = free.union(*(names for names in own if free & names))
    if not others <= set(start):
        return []
    decided = others.union(*own)
    smallest = axes.smallest().items()
    others_small = {name: length for name, length in smallest if name not in decided}
    sizes = []
    for lengths in _candidates(condition, sorted(others), start, axes.smallest()):
        size = {**start, **others_small, **lengths}
        if not _is_allowed(size, axes, _MOST_PIXELS if condition.is_own else _FEW_PIXELS):
            continue
        if value_of(condition, size) is (not condition.result):
            sizes.append(size)
    same = [size for size in sizes if _decides_alike(before, size)]
    sizes = sorted(same or sizes, key=axes.elements)
    count = min(limit, len(sizes))
    return [sizes[len(sizes) * index // count] for index in range(count)]


def _decides_alike(conditions: Sequence[Condition], size: Lengths) -> bool:
    return all(value_of(condition, size) in (condition.result, None) for condition in conditions)


def _candidates(
    condition: Condition,
    names: Sequence[str],
    start: Lengths,
    small: Lengths,
) -> Iterator[dict[str, int]]:
    integers = condition.expression.atoms(sympy.Integer)
    numbers = {abs(int(number)) for number in integers}
    numbers |= {isqrt(number) for number in numbers}
    neighbors = (number + step for number in numbers for step in (-1, 0, 1))
    for length in sorted({*_SIZES, *neighbors}):
        yield dict.fromkeys(names, length)
        if len(names) == 1:
            continue
        for name in names:
            yield {axis: start[axis] for axis in names} | {name: length}
            yield {axis: small[axis] for axis in names} | {name: length}
            yield dict.fromkeys(names, 2 * length) | {name: length}


def _is_allowed(lengths: Lengths, axes: FreeAxes, pixels: int) -> bool:
    for name, length in lengths.items():
        low, high = axes.limits[name]
        if not low <= length <= (min(high, _MOST_IMAGES) if name == "batch" else high):
            return False
    return axes.elements(lengths) <= pixels


def value_of(condition: Condition, lengths: Lengths) -> bool | None:
    """Return the result of a condition; None where it has none, as of a division by zero."""
    symbols = list_symbols(condition.expression)
    if not lengths.keys() >= symbols.keys():
        return None
    return _value_at(condition.expression, tuple(lengths[name] for name in symbols))


@lru_cache(maxsize=1 << 12)
def _compile(expression: Any) -> Callable[..., Any] | None:
    """Return a Python function of whole numbers, which sympy takes 50 times as long to compute.

    None for an expression whose value is not exact then, as of a root or a fraction.
    """
    for part in sympy.preorder_traversal(expression):
        is_power = isinstance(part, sympy.Pow)
        if is_power and not (part.exp.is_Integer and part.exp > 0):
            return None
        if not is_power and type(part).__name__ not in _EXACT:
            return None
    compiled: Callable[..., Any] = sympy.lambdify(
        [*list_symbols(expression).values()], expression, modules=[_FUNCTIONS]
    )
    return compiled


@lru_cache(maxsize=_CACHE_SIZE)
def _value_at(expression: Any, lengths: tuple[int, ...]) -> bool | None:
    compiled = _compile(expression)
    try:
        if compiled is not None:
            return bool(compiled(*lengths))
        symbols = list_symbols(expression).values()
        numbers = zip(symbols, lengths, strict=True)
        value = expression.xreplace({symbol: sympy.Integer(n) for symbol, n in numbers})
    except (ArithmeticError, AssertionError, TypeError, ValueError):  # as a division by zero
        return None
    if value in (sympy.true, sympy.false):
        return bool(value)
    return bool(value != 0) if isinstance(value, sympy.Number) else None
