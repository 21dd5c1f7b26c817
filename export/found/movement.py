"""Operators that only move elements: they move places as they move data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from ..search.places import MOVED, NONE, compact, extended, reshaped
from ..search.tokens import Number, as_number
from .values import Score, Value


def names(text: str) -> frozenset[str]:
    """Return the names of operators in a text."""
    return frozenset(text.split())


MOVES = names(
    "view _unsafe_view reshape permute transpose t mT expand expand_as view_as reshape_as slice "
    "select cat stack split split_with_sizes chunk unbind roll flip index_select as_strided "
    "unfold repeat clone contiguous alias detach squeeze unsqueeze lift_fresh_copy diagonal "
    "narrow index gather slice_scatter select_scatter unsafe_split channel_shuffle movedim "
    "moveaxis view_copy repeat_interleave native_channel_shuffle _reshape_alias rot90 tile "
    "take_along_dim flatten unflatten unsafe_chunk tensor_split swapaxes"
)
"""Names of operators that only move elements."""

PADS = frozenset(
    f"{kind}_pad{rank}" for kind in ("reflection", "replication") for rank in ("1d", "2d", "3d")
) | {"pad", "constant_pad_nd"}
"""Names of the operators that pad: (tensor, amounts, ...)."""

_RESHAPES = names("view _unsafe_view reshape _reshape_alias flatten unflatten")
_IN_ORDER = _RESHAPES | names("clone contiguous alias detach squeeze unsqueeze")
"""Operators that keep the order of the elements."""
_BROADCASTS = ("expand", "expand_as")
_BY_INDEX = ("index", "gather", "index_select", "take_along_dim", "repeat_interleave")

Pick = Callable[[Callable[[Value], Any]], tuple[Any, Any]]
"""Returns arguments and keywords with each value replaced by a function of it."""


def name_of(target: Any) -> str:
    """Return the name of an ATen operator, without its overload."""
    return str(target._schema.name.partition("::")[2])


def move(target: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Apply an operator that moves elements to numbers instead of data; return its results."""
    others = {key: value for key, value in kwargs.items() if key != "memory_format"}
    if name_of(target) in _RESHAPES:
        shape = target(torch.empty(args[0].shape, device="meta"), *args[1:], **others).shape
        return [reshaped(args[0], shape)]
    moved = target(*args, **others)
    return list(moved) if isinstance(moved, (list, tuple)) else [moved]


def moved_values(
    target: Any, values: list[Value], first: Value, outs: list[Any], pick: Pick
) -> tuple[list[Tensor], list[Score | None]]:
    """Return the places and scores of the results of an operator that moves elements.

    Args:
        target: The operator.
        values: All its tensor arguments.
        first: The tensor that is moved; others may be indices.
        outs: Its results.
        pick: Replaces values among its arguments.
    """
    indexed = name_of(target) in _BY_INDEX
    if indexed and any(_chosen_by_data(value) for value in values if value is not first):
        return [torch.full(out.shape, MOVED) for out in outs], [None] * len(outs)

    def moved(of: Callable[[Value], Tensor]) -> list[Tensor]:
        def part(value: Value) -> Tensor:
            return value.data if indexed and value is not first else _laid(target, value, of(value))

        return move(target, *pick(part))

    places = moved(lambda value: _or_none(value.place, value.data, NONE))
    places = [compact(place) for place in places]
    in_order = name_of(target) in _IN_ORDER or (
        name_of(target) in _BROADCASTS and outs[0].numel() == first.data.numel()
    )
    return places, _moved_scores(values, outs, moved, in_order=in_order)


def _chosen_by_data(value: Value) -> bool:
    return value.place is not None and not value.data.is_floating_point()


def _or_none(numbers: Tensor | None, data: Tensor, fill: int) -> Tensor:
    return torch.tensor(fill).expand(data.shape) if numbers is None else numbers


def _laid(target: Any, value: Value, of: Tensor) -> Tensor:
    """Return numbers in the memory layout of the data, on which ``as_strided`` depends."""
    if name_of(target) != "as_strided":
        return of
    like = torch.empty_strided(value.data.shape, value.data.stride(), dtype=of.dtype)
    return like.copy_(of)


def _moved_scores(
    values: list[Value],
    outs: list[Any],
    moved: Callable[[Callable[[Value], Tensor]], list[Tensor]],
    *,
    in_order: bool,
) -> list[Score | None]:
    scores = [value.score for value in values if value.score is not None]
    if not scores:
        return [None] * len(outs)
    base = scores[0]
    products = {score.product for score in scores}
    if len(products) > 1 or len(scores) < sum(value.place is not None for value in values):
        mixed = base.but("scores of several products are concatenated")
        return [replace(mixed, number=torch.full(out.shape, -1)) for out in outs]

    def full(value: Value, number: Number) -> Tensor:
        return as_number(number).expand(value.data.shape)

    def of(what: Callable[[Score], Number], without: float, *, needed: bool) -> list[Number]:
        if not needed and not isinstance(what(base), Tensor):
            return [what(base)] * len(outs)
        return list(moved(lambda value: full(value, what(value.score) if value.score else without)))

    def number(value: Value) -> Tensor | None:
        if value.score is None:
            return None
        return value.score.number if in_order else value.score.numbers

    numbers = moved(lambda value: _or_none(number(value), value.data, -1))
    alphas = of(lambda score: score.alpha, 0.0, needed=len(scores) > 1)
    betas = of(lambda score: score.beta, 0.0, needed=len(values) > 1)
    return [
        replace(base, number=moved_number, alpha=alpha, beta=beta)
        for moved_number, alpha, beta in zip(numbers, alphas, betas, strict=True)
    ]


def padded_places(places: Tensor, amounts: list[int]) -> Tensor:
    """Return the places of a padded tensor; amounts as ``torch.nn.functional.pad`` takes them."""
    for pair in range(len(amounts) // 2):
        axis = places.dim() - 1 - pair
        places = extended(places, axis, amounts[2 * pair], amounts[2 * pair + 1])
    return places


def unfolded(
    numbers: Tensor, args: Any, *, padded: Callable[[Tensor, list[int]], Tensor]
) -> Tensor:
    """Apply ``im2col`` to integers below 2^53, with its arguments ``args``.

    Args:
        numbers: Numbers instead of the data.
        args: Arguments of the operator.
        padded: Function that pads the numbers first.
    """
    _, kernel, dilation, padding, stride = args
    bordered = padded(numbers, [padding[1], padding[1], padding[0], padding[0]])
    return F.unfold(bordered.double(), kernel, dilation, 0, stride).long()


def node_name(node: fx.Node) -> str:
    """Return the name of a node's ATen operator, or "" for other nodes."""
    operator = isinstance(node.target, torch._ops.OpOverload)
    return name_of(node.target) if node.op == "call_function" and operator else ""
