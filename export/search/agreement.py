"""Compares the layout of an attention at two image sizes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .layout import Layout


@dataclass(frozen=True)
class Agreement:
    """The comparison of one attention at two image sizes.

    Attributes:
        reason: Why the attention is not a site of windows at every size, or "".
        same_tokens: Whether the numbers of queries and keys are the same at both sizes.
        alike: Whether its tokens are arranged alike at both sizes.
        exists: Whether it is there at both sizes.
        is_global: Whether all positions of the map attend to each other, at any size.
        changing: Whether a search with larger maps may determine the windows: the window sizes
            differ, or padding gives both maps the same number of rows or columns.
        one_window: Whether both maps have the rows or columns of one window: of a larger image they
            may have more.
    """

    reason: str = ""
    same_tokens: bool = True
    alike: bool = True
    exists: bool = True
    is_global: bool = False
    changing: bool = False
    one_window: bool = False


def agreement(first: Layout, second: Layout | None) -> Agreement:
    """Return the comparison of the layouts of an attention at two image sizes.

    Args:
        first: Layout at the first size.
        second: Layout at the second size; ``first`` again for a graph of a fixed size; None if the
            attention does not exist at the second size.
    """
    if second is first:
        return Agreement()
    if second is None:
        reason = "it does not exist at another image size"
        return Agreement(reason, same_tokens=False, exists=False)
    same_tokens = (first.tokens, first.keys) == (second.tokens, second.keys)
    if not _alike(first, second):
        reason = "its tokens are arranged differently at another image size"
        return Agreement(reason, same_tokens=same_tokens, alike=False, changing=True)
    sides = zip(first.map[1:], second.map[1:], strict=False)
    equal = any(side == other for side, other in sides)
    whole = _is_whole(first) and _is_whole(second)
    if whole and first.map[1:] != second.map[1:]:
        return Agreement(same_tokens=same_tokens, is_global=True, changing=equal)
    fixed = ("window", "shift", "margin", "key_window", "tokens", "keys")
    if any(_differs(first, second, name) for name in fixed):
        return Agreement(
            "its windows change with the image size",
            same_tokens=same_tokens,
            changing=True,
        )
    if not _equal(first.table, second.table):
        return Agreement("its biases change with the image size", same_tokens=same_tokens)
    lengths = zip(first.window, first.map[1:], second.window, second.map[1:], strict=False)
    one_window = any(len(set(axis)) == 1 for axis in lengths)
    return Agreement(changing=equal, one_window=one_window)


def _alike(first: Layout, second: Layout) -> bool:
    names = ("heads", "head_dim", "value_dim", "before", "masked", "bias", "columns_first")
    same = not any(_differs(first, second, name) for name in names)
    grids = (first.kind == "grid") == (second.kind == "grid")
    return same and grids and _equal(first.scale, second.scale)


def _is_whole(layout: Layout) -> bool:
    return bool(layout.window) and layout.window == layout.map[1:]


def _differs(first: Layout, second: Layout, name: str) -> bool:
    return bool(getattr(first, name) != getattr(second, name))


def _equal(first: Tensor | float | None, second: Tensor | float | None) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        if first.shape != second.shape:
            return False
        return bool(torch.allclose(first, second, atol=1e-6))
    return first == second
