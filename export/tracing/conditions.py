"""Conditions on sizes in the code of a network, of which a trace follows one branch.

``torch.export`` notes a condition such as ``height == width`` as an assertion of its program and
follows the branch of the example. Where another size decides otherwise, the program and the network
are compared at that size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isqrt
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor
from torch.export import ExportedProgram

from ...core.errors import UnsupportedModelError
from ...models.sizes.size_conditions import Condition
from ..differences import relative_difference
from .lowering import CHECKS, name_of

_ALLOWED = 1e-4
"""Largest difference of a program and its network, relative to the largest value."""

_SIZES = (*range(1, 140), 160, 192, 224, 256, 257, 320, 384, 400, 448, 512, 513, 640, 768, 1024)
"""Lengths of an axis at which a condition is evaluated, besides those of its own numbers."""

_MOST_PIXELS = 1 << 19
"""Most elements of one channel of the inputs of a comparison."""

_CASES = 3
"""Sizes at which a condition is compared."""


def refuse_branches(
    program: ExportedProgram,
    conditions: Sequence[Condition],
    expected: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    names: Sequence[Mapping[int, str]],
) -> None:
    """Raise where a program is another one than its network for sizes that decide otherwise.

    Args:
        program: The program of the branches that the example took.
        conditions: What decided on them.
        expected: Returns the outputs of the network for its inputs.
        names: Names of the free axes of each input by number.

    Raises:
        UnsupportedModelError: A size gives other results; the message names the condition.
    """
    inputs = _inputs(program)
    axes = _axes(inputs, names)
    limits = {symbol: program.range_constraints.get(symbol) for symbol in axes}
    run: Callable[..., Any] | None = None
    seen: set[Any] = set()
    for condition in conditions:
        if condition.expression in seen or not isinstance(condition.result, bool):
            continue
        seen.add(condition.expression)
        for size in _deciding_otherwise(condition, inputs, axes, limits):
            run = run or _without_checks(program)
            images = _noise(inputs, size)
            try:
                right = expected(images)
            except Exception:  # the network does not take this size
                continue
            if not _agrees(run, images, right):
                raise UnsupportedModelError(_text(condition, size, axes))


def _agrees(run: Callable[..., Any], images: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    try:
        with torch.no_grad():
            returned = run(*images)
    except Exception:  # the branch of the example does not take this size
        return False
    outputs = (returned,) if isinstance(returned, Tensor) else tuple(returned)
    return relative_difference(outputs, right) <= _ALLOWED


def _text(condition: Condition, size: Mapping[Any, int], axes: Mapping[Any, str]) -> str:
    readable = condition.expression.subs({symbol: sympy.Symbol(axes[symbol]) for symbol in axes})
    lengths = ", ".join(f"{axes[symbol]} {length}" for symbol, length in size.items())
    return (
        f"the code of the network decides by {readable!s:.200} ({condition.where}), and computes "
        f"something else for {lengths}: a file holds one of its branches, so give `static` with a "
        "fixed size, or write it without this condition"
    )


def _inputs(program: ExportedProgram) -> list[Tensor]:
    """Return the symbolic inputs of a program."""
    given = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    return [node.meta["val"] for node in nodes if node.name in given]


def _axes(inputs: Sequence[Tensor], names: Sequence[Mapping[int, str]]) -> dict[Any, str]:
    found: dict[Any, str] = {}
    for place, tensor in enumerate(inputs):
        named = names[place] if place < len(names) else {}
        for axis, length in enumerate(tensor.shape):
            symbol = _symbol(length)
            if symbol is not None:
                found.setdefault(symbol, named.get(axis, f"axis {axis}"))
    return found


def _symbol(length: Any) -> Any:
    expression = length.node.expr if isinstance(length, torch.SymInt) else None
    return expression if isinstance(expression, sympy.Symbol) else None


def _hints(inputs: Sequence[Tensor]) -> dict[Any, int]:
    hints: dict[Any, int] = {}
    for tensor in inputs:
        for length in tensor.shape:
            symbol = _symbol(length)
            if symbol is not None:
                node: Any = length.node  # type: ignore[attr-defined]
                hints[symbol] = int(node.hint)
    return hints


def _deciding_otherwise(
    condition: Condition,
    inputs: Sequence[Tensor],
    axes: Mapping[Any, str],
    limits: Mapping[Any, Any],
) -> list[dict[Any, int]]:
    """Return sizes for which a condition has another result: the smallest, and larger ones."""
    symbols = [symbol for symbol in axes if symbol in condition.expression.free_symbols]
    hints = _hints(inputs)
    small = {symbol: _least(limits[symbol], axes[symbol]) for symbol in axes}
    numbers = {abs(int(each)) for each in condition.expression.atoms(sympy.Integer)}
    numbers |= {isqrt(each) for each in numbers}
    lengths = sorted({*_SIZES, *(n + step for n in numbers for step in (-1, 0, 1))})
    found: list[dict[Any, int]] = []
    for size in _sizes(symbols, lengths, hints, small):
        if any(not _allowed(limits[symbol], length) for symbol, length in size.items()):
            continue
        if _value(condition, {**hints, **size}) is not (not condition.result):
            continue
        found.append({**small, **size})
    found = [size for size in found if _elements(inputs, size) <= _MOST_PIXELS]
    found.sort(key=lambda size: _elements(inputs, size))
    return [found[len(found) * place // _CASES] for place in range(min(_CASES, len(found)))]


def _sizes(
    symbols: Sequence[Any],
    lengths: Sequence[int],
    hints: Mapping[Any, int],
    small: Mapping[Any, int],
) -> Iterator[dict[Any, int]]:
    for length in lengths:
        yield dict.fromkeys(symbols, length)
        if len(symbols) == 1:
            continue
        for symbol in symbols:
            yield {each: hints[each] for each in symbols} | {symbol: length}
            yield {each: small[each] for each in symbols} | {symbol: length}
            yield dict.fromkeys(symbols, 2 * length) | {symbol: length}


def _value(condition: Condition, size: Mapping[Any, int]) -> bool | None:
    expression = condition.expression
    try:
        value = expression.xreplace({one: sympy.Integer(n) for one, n in size.items()})
    except Exception:  # a division by zero, for instance
        return None
    if value in (sympy.true, sympy.false):
        return bool(value)
    return bool(value != 0) if isinstance(value, sympy.Number) else None


def _least(limit: Any, name: str) -> int:
    lower = 1 if limit is None else int(limit.lower)
    return lower if name == "batch" or lower > 1 else max(lower, 16)


def _allowed(limit: Any, length: int) -> bool:
    return length >= 1 and (limit is None or int(limit.lower) <= length <= int(limit.upper))


def _elements(inputs: Sequence[Tensor], size: Mapping[Any, int]) -> int:
    total = 0
    for tensor in inputs:
        count = 1
        for length in tensor.shape:
            symbol = _symbol(length)
            count *= 1 if symbol is None else size[symbol]
        total += count
    return total


def _noise(inputs: Sequence[Tensor], size: Mapping[Any, int]) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    images = []
    for tensor in inputs:
        symbols = [_symbol(length) for length in tensor.shape]
        shape = [
            int(length) if symbol is None else size[symbol]
            for symbol, length in zip(symbols, tensor.shape, strict=True)
        ]
        if tensor.is_floating_point():
            images.append(torch.rand(shape, generator=random).to(tensor.dtype))
        else:
            images.append(torch.zeros(shape, dtype=tensor.dtype))
    return images


def _without_checks(program: ExportedProgram) -> Callable[..., Any]:
    """Return what computes a program at any size, without its assertions."""
    module: Any = program.module(check_guards=False)
    for node in list(module.graph.nodes):
        if name_of(node).startswith(CHECKS):
            module.graph.erase_node(node)
    module.recompile()
    module._forward_pre_hooks.clear()
    return module  # type: ignore[no-any-return]
