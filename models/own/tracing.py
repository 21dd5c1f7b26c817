"""Keeps sizes symbolic in modules whose code converts them by ``int``.

Networks with windows usually find the batch as ``int(windows.shape[0] / (H * W / size / size))``,
and Python's ``int`` turns a symbolic size into a constant. While such a network is traced,
a class of the same name stands in the modules that its code is written in. It makes a symbolic
number whole and leaves all others to Python's.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..sizes.plain_run import run_plainly
from ..sizes.python_state import find_code

_SYMBOLS = (torch.SymInt, torch.SymFloat)


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.int)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, builtins.int)


class _Int(metaclass=_Kind):
    def __new__(cls, value: Any = 0, *more: Any) -> Any:
        sym_int: Any = torch.sym_int
        return sym_int(value) if isinstance(value, _SYMBOLS) else builtins.int(value, *more)


def call_with_open_sizes(network: nn.Module, *inputs: Tensor) -> Any:
    """Call a network on its inputs, as `run_plainly` says."""
    with run_plainly(), _open_sizes(network):
        return network(*inputs)


@contextmanager
def _open_sizes(network: nn.Module) -> Iterator[None]:
    spaces = [*find_code(network).values()] if torch.compiler.is_exporting() else []
    changed = [space for space in spaces if "int" not in vars(space)]
    for space in changed:
        vars(space)["int"] = _Int
    try:
        yield
    finally:
        for space in changed:
            del vars(space)["int"]
