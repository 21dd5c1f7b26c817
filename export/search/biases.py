"""Reads the scale, the mask of regions and the table of position biases of an attention."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .places import is_zero, unshare
from .values import Attention, has_empty_rows

if TYPE_CHECKING:
    from .layout import Layout

_MASKED = -50.0
"""Biases below this value are a mask. Trained biases are larger."""

_HIDDEN = -1e8
"""Masks from here on hide keys at any score; -100, of Swin, does at those of images in 0..1."""

_NOTHING = 1e-12
"""Biases up to this value are none."""
_MOST_KINDS = 16
"""Most windows with different biases that are compared with every other window."""


def read_scale(alpha: Tensor | float, layout: Layout) -> float | Tensor:
    """Return the scale of the scores: one number, or one per head, (heads,).

    Args:
        alpha: Factor of the scores, a number or (g, N, Nk).
        layout: Layout of the attention. If the factors are not one per head, its reason is set, and
            the scale is 1.0.
    """
    if not isinstance(alpha, Tensor):
        return float(alpha)
    each = alpha[:, :1, :1]
    if not bool(torch.allclose(unshare(alpha), each)):
        layout.reason = layout.reason or "its scores have a factor that differs between tokens"
        return 1.0
    by_group = each[:, 0, 0].expand(layout.groups)
    heads = by_group[layout.group]
    if not bool((heads == heads[:1]).all()):
        layout.reason = layout.reason or "its scores have a factor that differs between windows"
        return 1.0
    if bool((heads == heads[0, 0]).all()):
        return float(heads[0, 0])
    return heads[0]


def read_biases(core: Attention, layout: Layout) -> None:
    """Write the scale, mask and position bias of an attention into its layout, in place."""
    layout.scale = read_scale(core.alpha, layout)
    beta = core.beta
    if core.emptied and isinstance(beta, Tensor) and has_empty_rows(beta):
        layout.reason = layout.reason or "some of its queries have no key"
    if core.by_data:
        layout.bias = "data"
        layout.reason = layout.reason or "its biases depend on the input"
        return
    if not isinstance(beta, Tensor) or is_zero(beta):
        return
    stack = np.ndindex(beta.shape[:-2])
    pairs = [beta[index] for index in stack]
    kinds = _group_windows(pairs, layout.group)
    biases = [_of_window(pairs, layout, kind[0]) for kind in kinds]
    bias = functools.reduce(torch.maximum, biases)
    if len(kinds) > 1:
        layout.masked = _classify_mask(pairs, bias, kinds, layout)
    lowest, highest = map(float, bias.aminmax())
    if not layout.masked and lowest < _MASKED:
        layout.masked = "other"
    if layout.masked == "other":
        layout.bias = "pairs"
        layout.reason = layout.reason or "its mask is not the one of a cyclic shift"
        return
    if max(-lowest, highest) <= _NOTHING:
        return
    layout.table = None
    if layout.window and layout.key_window and not any(layout.before):
        layout.table = read_bias_table(bias, layout.window, layout.key_window, layout.columns_first)
    layout.bias = "pairs" if layout.table is None else "table"
    if layout.table is None:
        layout.reason = layout.reason or "its biases are not a table of positions"


def _of_window(pairs: Sequence[Tensor], layout: Layout, window: int) -> Tensor:
    """Return the biases of a window, (heads, N, Nk)."""
    numbers = layout.group[window].tolist()
    return torch.stack([pairs[number] for number in numbers])


def _group_windows(pairs: Sequence[Tensor], group: Tensor) -> list[list[int]]:
    """Return the numbers of the windows, those with equal biases in one list.

    Args:
        pairs: Biases of each group, (N, Nk).
        group: Number of the group of each head of each window, (windows, heads).
    """
    kinds: list[tuple[list[int], list[int]]] = []
    for number, heads in enumerate(group.tolist()):
        for kind, first in kinds[:_MOST_KINDS]:
            heads_pairs = zip(first, heads, strict=True)
            if all(torch.equal(pairs[a], pairs[b]) for a, b in heads_pairs):
                kind.append(number)
                break
        else:
            kinds.append(([number], heads))
    return [kind for kind, _ in kinds]


def _classify_mask(
    pairs: Sequence[Tensor],
    bias: Tensor,
    kinds: list[list[int]],
    layout: Layout,
) -> str:
    """Return what masks pairs of tokens in some windows: ``regions``, ``hidden``, ``other`` or "".

    Args:
        pairs: Biases of each group, (N, Nk).
        bias: Biases of pairs that at least one window does not mask, (heads, N, Nk).
        kinds: Numbers of the windows, those with equal biases in one list.
        layout: Layout of the attention.
    """
    hidden = torch.isinf(bias)

    def relative(kind: list[int]) -> Tensor:
        difference = _of_window(pairs, layout, kind[0]) - bias
        return difference.masked_fill(hidden, 0.0)

    lowest = [float(relative(kind).min()) for kind in kinds]
    low = min(lowest)
    if low >= -1e-9:
        return ""
    tokens = layout.places.shape[-1]
    map_has_all = layout.tokens == layout.keys == tokens
    if low > _MASKED or not any(layout.shift) or not map_has_all:
        return "other"
    regions = all(
        _is_of_regions(relative(kind), low, layout.places[kind], layout) for kind in kinds
    )
    if regions:
        return "hidden" if low <= _HIDDEN else "regions"
    return "other"


def _is_of_regions(
    relative: Tensor,
    low: float,
    places: Tensor,
    layout: Layout,
) -> bool:
    """Return whether the masked pairs of windows with equal biases are those that wrap around.

    Args:
        relative: Biases relative to those of pairs that are not masked, (heads, N, Nk).
        low: The lowest in all windows.
        places: Positions of the queries of each of these windows on the map, (windows, N).
        layout: Layout of the attention.
    """
    far = relative < _MASKED
    near_low = (relative - low).abs() < 1e-2
    near_zero = relative.abs() < 1e-4
    binary = torch.where(far, near_low, near_zero) | torch.isinf(relative)
    if not bool(binary.all()):
        return False
    same_pairs = bool((far == far[:1]).all())
    if not same_pairs:
        return False
    height, width = layout.map[1:]
    y = places // width % height
    x = places % width
    above = y < layout.shift[0]
    left = x < layout.shift[1]
    beyond = torch.stack((above, left), 1)  # (windows, 2, N)
    for sides in beyond.unique(dim=0):
        crossing = sides[:, :, None] != sides[:, None, :]
        if not torch.equal(crossing.any(0), far[0]):
            return False
    return True


def read_bias_table(
    bias: Tensor,
    window: tuple[int, ...],
    keys: tuple[int, ...],
    columns_first: bool = False,
) -> Tensor | None:
    """Return the table of position biases, or None if a bias depends on more than the offset.

    Args:
        bias: Position biases (heads, N, Nk).
        window: Rows and columns of the queries, wh and ww.
        keys: Rows and columns of the keys, kh and kw.
        columns_first: Whether tokens are numbered column by column.

    Returns:
        Table ((wh + kh - 1)(ww + kw - 1), heads), or None.
    """
    (rows, columns), (key_rows, key_columns) = window, keys
    tokens = (rows * columns, key_rows * key_columns)
    if tokens != tuple(bias.shape[1:]):
        return None
    qy, qx = _number_tokens(window, columns_first)
    ky, kx = _number_tokens(keys, columns_first)
    offset_rows = rows + key_rows - 1
    offset_columns = columns + key_columns - 1
    y_offset = qy[:, None] - ky + key_rows - 1
    x_offset = qx[:, None] - kx + key_columns - 1
    index = y_offset * offset_columns + x_offset
    size = offset_rows * offset_columns
    table = torch.zeros(size, len(bias), dtype=bias.dtype)
    table[index.flatten()] = bias.flatten(1).T
    back = table[index].permute(2, 0, 1)
    if bool(torch.all((back - bias).abs() <= 1e-6)):
        return table
    return None


def _number_tokens(sides: tuple[int, ...], columns_first: bool) -> tuple[Tensor, Tensor]:
    """Return the row and column of each token of a window."""
    rows = torch.arange(sides[0])
    columns = torch.arange(sides[1])
    if columns_first:
        return rows.repeat(sides[1]), columns.repeat_interleave(sides[0])
    return rows.repeat_interleave(sides[1]), columns.repeat(sides[0])
