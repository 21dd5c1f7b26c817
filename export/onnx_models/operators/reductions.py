"""Reductions and sorting operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .values import axes_of


def _reduction(function: Callable[[Tensor, list[int], bool], Tensor]) -> Callable[..., Tensor]:
    """Return a reduction whose axes are an input, or an attribute as in older opsets."""

    def reduced(
        x: Tensor,
        axes: Tensor | Sequence[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        unsaid = axes is None or len(axes) == 0
        if unsaid and noop_with_empty_axes:
            return x
        return function(x, axes_of(None if unsaid else axes, x.dim()), bool(keepdims))

    return reduced


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


def _extreme(find: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def found(x: Tensor, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        if select_last_index:
            size = x.shape[axis]
            return size - 1 - find(x.flip(axis), axis, keepdim=bool(keepdims))
        return find(x, axis, keepdim=bool(keepdims))

    return found


def _cumsum(x: Tensor, axis: Tensor, exclusive: int = 0, reverse: int = 0) -> Tensor:
    along = int(axis)
    turned = x.flip(along) if reverse else x
    summed = torch.cumsum(turned, along)
    summed = summed - turned if exclusive else summed
    return summed.flip(along) if reverse else summed


def _top_k(
    x: Tensor, k: Tensor, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    values, places = torch.topk(x, int(k), axis, bool(largest), True)
    return values, places


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ArgMax": _extreme(torch.argmax),
    "ArgMin": _extreme(torch.argmin),
    "CumSum": _cumsum,
    "ReduceL1": _reduction(lambda x, axes, keep: x.abs().sum(axes, keepdim=keep)),
    "ReduceL2": _reduction(
        lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keepdim=keep)
    ),
    "ReduceMax": _reduction(lambda x, axes, keep: torch.amax(x, axes, keepdim=keep)),
    "ReduceMean": _reduction(lambda x, axes, keep: torch.mean(x, axes, keepdim=keep)),
    "ReduceMin": _reduction(lambda x, axes, keep: torch.amin(x, axes, keepdim=keep)),
    "ReduceProd": _reduction(_product),
    "ReduceSum": _reduction(lambda x, axes, keep: torch.sum(x, axes, keepdim=keep)),
    "ReduceSumSquare": _reduction(lambda x, axes, keep: (x * x).sum(axes, keepdim=keep)),
    "TopK": _top_k,
}
"""Operator of ONNX -> what computes it."""
