"""Finds the statement of a network's code for which a trace fixes or limits a size."""

from __future__ import annotations

import re
from collections.abc import Sequence

import sympy  # type: ignore[import-untyped]
from torch import nn

from .conditions import conditions_at
from .deciding_sizes import FreeAxes, sizes_deciding_otherwise, value_of
from .size_conditions import Condition

_ADVICE = "give `static` with a fixed size, or write it with tensors, which keep sizes free"

_TEXTS = ("Constraints violated", "Specializations unexpectedly", "inconsisten")
"""Parts of PyTorch's messages about sizes that did not stay free."""

_LARGEST = 4096
"""Largest length for which a limit of one axis is evaluated."""


def size_fault(error: BaseException, network: nn.Module, axes: FreeAxes) -> str | None:
    """Return a sentence on the statement that fixes a size, or None if the error is another one.

    Args:
        error: What a trace raised.
        network: The network, which is not modified.
        axes: The free axes of the trace.
    """
    text = str(error)
    if not any(part in text for part in _TEXTS):
        return None
    named = {name for name in axes.example if re.search(rf"\b{re.escape(name)}\b", text)}
    faults = [
        condition
        for condition in conditions_at(network, axes, axes.example)
        if named & condition.names() or not named
    ]
    deciding = [
        condition
        for condition in faults
        if sizes_deciding_otherwise(condition, (), axes, axes.example, 1)
    ]
    deciding.sort(key=lambda condition: not condition.is_own)
    for kind in (_is_pinned, _is_bound):
        for condition in deciding:
            if kind(condition) and (named or condition.is_own):
                return _text(condition)
    which = " and ".join(sorted(named)) or "sizes"
    return f"the code of the network computes with {which} in a way that PyTorch fixes: {_ADVICE}"


def find_limits(
    error: BaseException, network: nn.Module, axes: FreeAxes
) -> dict[str, tuple[int, int]]:
    """Return the smallest and largest lengths for which code decides as for the example.

    Args:
        error: What a trace raised.
        network: The network, which is not modified.
        axes: The free axes of the trace.

    Returns:
        Limits by name of an axis, of those that code compares with numbers. {}: the error is
        another one.
    """
    if _TEXTS[0] not in str(error):
        return {}
    conditions = conditions_at(network, axes, axes.example)
    bounds = [condition for condition in conditions if _is_bound(condition)]
    bounds = [condition for condition in bounds if len(condition.names()) == 1]
    limits = {}
    for name in sorted({name for condition in bounds for name in condition.names()}):
        own = [condition for condition in bounds if name in condition.names()]
        start, (low, high) = axes.example[name], axes.limits[name]
        below = _extend(own, name, range(start, low - 1, -1))
        longer = range(start, min(high, _LARGEST) + 1)
        above = _extend(own, name, longer)
        limits[name] = below, high if above == _LARGEST else above
    changed = limits.items()
    return {name: limit for name, limit in changed if limit != axes.limits[name]}


def _extend(conditions: Sequence[Condition], name: str, lengths: Sequence[int]) -> int:
    """Return the last of some lengths before a condition has another result."""
    last = lengths[0]
    for length in lengths:
        size = {name: length}
        if any(value_of(condition, size) is not condition.result for condition in conditions):
            break
        last = length
    return last


def _is_pinned(condition: Condition) -> bool:
    is_equal = isinstance(condition.expression, sympy.Eq) and condition.result
    return condition.number is not None or is_equal


def _is_bound(condition: Condition) -> bool:
    return isinstance(condition.expression, sympy.core.relational._Inequality)


def _text(condition: Condition) -> str:
    if condition.number is None:
        by = "the code of the network" if condition.is_own else "PyTorch, called by the network,"
        return (
            f"{by} decides by {condition.expression!s:.200} ({condition.where}): a file holds one "
            "of its branches, so give `static` with a fixed size, or write it without this "
            "condition"
        )
    size = condition.expression.lhs
    return (
        f"the code of the network takes {size!s:.100} as the number {condition.number:g} "
        f"({condition.where}): a file would hold it for every size, so {_ADVICE}"
    )
