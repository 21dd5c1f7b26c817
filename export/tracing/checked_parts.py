"""Compares an operator with those that it is written as, at sizes that decide otherwise.

A decomposition of PyTorch may branch on a size, as that of a norm does for an even order: the file
would hold the branch of the traced size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from ...core.errors import UnsupportedModelError, is_out_of_memory
from ..differences import relative_difference
from .deciding_sizes import FreeAxes, Lengths, sizes_deciding_otherwise
from .lowering import name_of
from .size_conditions import Condition
from .trace_fault import is_of_network

_ALLOWED = 1e-4
"""Largest difference of an operator and its parts, relative to the largest value."""

_AXES: ContextVar[FreeAxes | None] = ContextVar("free axes of the program", default=None)


@contextmanager
def parts_checked(axes: FreeAxes) -> Iterator[None]:
    """Compare operators with their parts within a block, for lengths of these axes."""
    before = _AXES.set(axes)
    try:
        yield
    finally:
        _AXES.reset(before)


def check_parts(
    node: fx.Node,
    operator: Callable[..., Any],
    parts: Callable[..., Any],
    values: Sequence[Any],
    decided: Sequence[Condition],
) -> None:
    """Raise where the parts of an operator are right for some sizes only.

    Args:
        node: The operator.
        operator: Computes it for the values of its inputs.
        parts: Computes its parts.
        values: Its inputs, with symbolic sizes.
        decided: What was decided by sizes when the parts were written.

    Raises:
        UnsupportedModelError: They are; the message names the operator and the condition.
    """
    axes = _AXES.get()
    if axes is None:
        return
    seen = set()
    for condition in decided:
        own = condition.rename(axes.symbols)
        if own.expression in seen:
            continue
        seen.add(own.expression)
        for lengths in sizes_deciding_otherwise(own, (), axes, axes.example, 1):
            sized = [_value(value, axes, lengths) for value in values]
            if not _is_same(operator, parts, sized):
                raise UnsupportedModelError(_text(node, own, lengths))


def _is_same(
    operator: Callable[..., Any],
    parts: Callable[..., Any],
    values: Sequence[Any],
) -> bool:
    with torch.no_grad():
        try:
            expected = operator(*values)
        except (RuntimeError, IndexError, ValueError) as error:  # it does not take this size
            if is_out_of_memory(error):
                raise
            return True
        try:
            got = parts(*values)
        except Exception:  # noqa: BLE001 - whatever it raises, the operator has a result
            return False
    right = [value for value in _as_list(expected) if isinstance(value, Tensor)]
    if not all(bool(tensor.isfinite().all()) for tensor in right):
        return True
    return relative_difference(_as_list(got)[: len(right)], right) <= _ALLOWED


def _as_list(returned: Any) -> list[Any]:
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


def _value(value: Any, axes: FreeAxes, lengths: Lengths) -> Any:
    """Return a value at some lengths: a tensor is noise of both signs, or zeros if of integers."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _number(value, axes, lengths)
    if not isinstance(value, Tensor):
        return value
    shape = [_number(length, axes, lengths) for length in value.shape]
    if not value.is_floating_point():
        return torch.zeros(shape, dtype=value.dtype)
    random = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=random).to(value.dtype)


def _number(value: Any, axes: FreeAxes, lengths: Lengths) -> Any:
    if isinstance(value, int):
        return value
    expression = value.node.expr.xreplace(dict(axes.symbols))
    symbols = expression.free_symbols
    number = expression.subs({symbol: lengths[str(symbol)] for symbol in symbols})
    if isinstance(value, torch.SymFloat):
        return float(number)
    return bool(number) if isinstance(value, torch.SymBool) else int(number)


def place_of(node: fx.Node) -> str:
    """Return an operator's name with the file and line of the network's code that calls it."""
    trace = str(node.meta.get("stack_trace", ""))
    frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
    theirs = [frame for frame in frames if is_of_network(frame[0])]
    if not theirs:
        return f"`{name_of(node)}`"
    file, line = theirs[-1]
    return f"`{name_of(node)}`, {Path(file).name}, line {line}"


def _text(node: fx.Node, condition: Condition, lengths: Lengths) -> str:
    at = ", ".join(f"{name} {length}" for name, length in lengths.items())
    return (
        f"PyTorch writes an operator ({place_of(node)}) by others as {condition.expression!s:.200} "
        f"decides for the traced size, and they compute something else for {at}: give `static` "
        "with a fixed size"
    )
