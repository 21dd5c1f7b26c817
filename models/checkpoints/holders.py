"""Walks through the content of a checkpoint to the dictionaries that hold tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from .pickle_values import Standin
from .rebuilding import MAX_TENSORS
from .unwrapping import Leaf

_DEEPEST = 4
_MAX_VISITS = 10_000
_MAX_OF_LIST = 100
_DEEPEST_MODULE = 64


def holders(content: Any) -> dict[str, dict[str, Leaf]]:
    """Return the dictionaries with tensors, by the names that they stand under, joined by ``/``.

    A pickled module is one dictionary: its parameters and buffers by their usual keys.
    """
    tensors: dict[str, dict[str, Leaf]] = {}
    waiting: deque[tuple[tuple[str, ...], Any]] = deque([((), content)])
    seen: set[int] = set()
    while waiting and len(seen) < _MAX_VISITS:
        names, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        entries = dict(_entries(value))
        leaves = {key: each for key, each in entries.items() if isinstance(each, Leaf)}
        if leaves:
            tensors["/".join(names)] = leaves
        if len(names) < _DEEPEST:
            waiting += (
                ((*names, key), each)
                for key, each in entries.items()
                if isinstance(each, (dict, list, tuple, Standin))
            )
    return tensors


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((key, each) for key, each in value.items() if isinstance(key, str))
    elif isinstance(value, Standin):
        if _is_module(value):
            yield from _module_tensors(value)
            return
        if isinstance(value.state, dict):
            yield from value.state.items()
        yield from value.entries.items()
        yield from _place(value.arguments)
    elif isinstance(value, (list, tuple)):
        yield from _place(value)


def _place(values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for place, each in enumerate(values):
        if place < _MAX_OF_LIST or isinstance(each, Leaf):
            yield str(place), each


def _is_module(value: Any) -> bool:
    if not isinstance(value, Standin) or not isinstance(value.state, dict):
        return False
    return all(isinstance(value.state.get(name), dict) for name in ("_parameters", "_modules"))


def _module_tensors(module: Standin) -> Iterator[tuple[str, Leaf]]:
    """Yield the tensors of a pickled module as its ``state_dict`` would hold them."""
    waiting = [("", module, 0)]
    visits = count = 0
    while waiting and visits < _MAX_VISITS and count < MAX_TENSORS:
        prefix, part, depth = waiting.pop()
        visits += 1
        state = part.state
        passing = state.get("_non_persistent_buffers_set")
        passing = passing if isinstance(passing, list) else []
        for kind in ("_parameters", "_buffers"):
            tensors = state.get(kind)
            for name, value in tensors.items() if isinstance(tensors, dict) else ():
                if isinstance(value, Leaf) and not (kind == "_buffers" and name in passing):
                    count += 1
                    yield prefix + name, value
        if depth < _DEEPEST_MODULE:
            waiting += (
                (f"{prefix}{name}.", each, depth + 1)
                for name, each in reversed(state["_modules"].items())
                if _is_module(each)
            )
