"""Sorts whose equal values keep their order, and selections that take the first of them.

PyTorch leaves both open: the order that `torch.sort` returns differs among processors. `TopK` of
ONNX, which both become, states it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..torch_internals import get_proxy_mode


def _sort(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    named = dict(zip(("input", "dim", "descending"), args, strict=False))
    return function(**named | options | {"stable": True})


def _select(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    if get_proxy_mode() is not None:  # as a graph it is `TopK`
        return function(*args, **options)
    named = dict(zip(("input", "k", "dim", "largest"), args, strict=False)) | options
    dim, count = named.get("dim", -1), named["k"]
    falling = named.get("largest", True)
    values, indices = torch.sort(named["input"], dim=dim, descending=falling, stable=True)
    return torch.return_types.topk((values.narrow(dim, 0, count), indices.narrow(dim, 0, count)))


_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    torch.sort: partial(_sort, torch.sort),
    Tensor.sort: partial(_sort, torch.sort),
    torch.argsort: partial(_sort, torch.argsort),
    Tensor.argsort: partial(_sort, torch.argsort),
    torch.topk: partial(_select, torch.topk),
    Tensor.topk: partial(_select, torch.topk),
}


def in_stable_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what computes a function: another one where the order of equal values is open."""
    return _FUNCTIONS.get(function, function)
