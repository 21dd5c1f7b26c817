"""Caches keyed by sizes, in runs whose sizes are symbols, which have no hash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from .given import GivenNetwork
from .python_state import PythonState

_SIZES = (torch.SymInt, torch.SymFloat)


class _Cache(dict[Any, Any]):
    """A dictionary that takes sizes that are symbols as keys, and as parts of keys."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(_name_sizes(key))

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(_name_sizes(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_name_sizes(key), value)

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_name_sizes(key), default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        return super().setdefault(_name_sizes(key), default)


def _name_sizes(key: Any) -> Any:
    if isinstance(key, _SIZES):
        return "a size", str(key.node.expr)
    return tuple(map(_name_sizes, key)) if isinstance(key, tuple) else key


@contextmanager
def open_caches(network: nn.Module) -> Iterator[None]:
    """Let code run with symbols, whose values must not stay in what it keeps.

    Dictionaries that were empty before any call take sizes as keys, and functions with a cache
    compute: `refuse_kept_state` showed that results do not depend on what calls leave in them. All
    that code keeps outside of the network is put back in the end.

    Args:
        network: It runs in the block; its own dictionaries are replaced.
    """
    given = getattr(network, "given", None)
    if isinstance(given, GivenNetwork):
        state = given.state
        _open_attributes(given, network)
    else:
        state = PythonState(network, attributes=False)
    state.restore()
    with state.open_caches(_Cache):
        yield


def _open_attributes(given: GivenNetwork, network: nn.Module) -> None:
    parts = dict(network.named_modules())
    for path, part in given.fresh().named_modules():
        own = parts.get(f"network.{path}".rstrip("."))
        for name, value in vars(part).items():
            if value == {} and type(value) is dict and not name.startswith("_") and own is not None:
                setattr(own, name, _Cache())
