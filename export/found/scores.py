"""Scores: products of queries and keys after element-wise operators and a softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from ..search.places import broadcasts
from ..search.tokens import Number, as_number
from .values import Score, Value

SOFTMAXES = ("_softmax", "softmax", "_safe_softmax")
KEEPS = ("_to_copy", "to", "clone", "dropout", "alias", "detach", "native_dropout", "contiguous")


def softmax_of(score: Score | None, node: fx.Node) -> Score | None:
    """Return the score of a softmax's result, or None if its input has none or is a softmax's."""
    if score is None or score.softmax is not None:
        return None
    return replace(score, softmax=node)


def elementwise_score(
    name: str, args: Any, kwargs: Any, values: list[Value], out: Tensor
) -> Score | None:
    """Return the score of the result of an element-wise operator, or None if it has none."""
    scored = [value for value in values if value.score is not None]
    if not scored or scored[0].score is None:
        return None
    score, first = scored[0].score, scored[0]
    if score.number.shape != out.shape and broadcasts(score.number.shape, out.shape):
        score = replace(score, number=score.numbers.expand(out.shape))
    if score.softmax is not None:
        return _behind_softmax(name, args, score, scored, first)
    if name in KEEPS:
        return score
    change = CHANGES.get(name)
    return None if change is None else change(args, kwargs, score, first)


def _behind_softmax(
    name: str, args: Any, score: Score, scored: list[Value], first: Value
) -> Score | None:
    if name in KEEPS:
        return score
    if name == "where" and len(scored) == 1 and _takes_all(args, first):
        return score  # a safe softmax replaces rows whose keys are all masked; here there are none
    others = [a for a in args[:3] if isinstance(a, Value) and a is not first]
    if len(scored) > 1 or any(value.place is not None for value in others):
        return None
    return score.but(f"the weights are changed after the softmax ({name})")


def _takes_all(args: Any, first: Value) -> bool:
    return bool((args[0].data == (args[1] is first)).all())


def _other(args: Any, first: Value) -> tuple[Any, bool, Score | None]:
    """Return the other operand of an operator, whether it depends on the input, and its score."""
    others = [a for a in args[:2] if isinstance(a, (Value, int, float)) and a is not first]
    if not others:  # the value itself, twice
        return first.data, True, first.score
    other = others[0]
    if not isinstance(other, Value):
        return other, False, None
    return other.data, other.place is not None, other.score


def _added(args: Any, kwargs: Any, score: Score, first: Value, sign: int = 1) -> Score | None:
    if args[0] is not first and sign < 0:
        return None
    other, data, scored = _other(args, first)
    if scored is not None:
        score = score.but("scores of several products are added")
    beta = as_number(score.beta) + sign * kwargs.get("alpha", 1) * as_number(other)
    return replace(score, beta=_number(beta), by_data=score.by_data or data)


def _subtracted(args: Any, kwargs: Any, score: Score, first: Value) -> Score | None:
    return _added(args, kwargs, score, first, -1)


def _scaled(args: Any, kwargs: Any, score: Score, first: Value) -> Score | None:
    return _multiplied(args, score, first, lambda other: other)


def _divided(args: Any, kwargs: Any, score: Score, first: Value) -> Score | None:
    if args[0] is not first or kwargs.get("rounding_mode") is not None:
        return None
    return _multiplied(args, score, first, torch.reciprocal)


def _multiplied(
    args: Any, score: Score, first: Value, turned: Callable[[Tensor], Tensor]
) -> Score | None:
    other, data, scored = _other(args, first)
    if scored is not None:
        score = score.but("scores are multiplied with scores")
    factor = turned(as_number(other))
    if data:
        score = score.but("a factor that depends on the input")
    alpha, beta = as_number(score.alpha) * factor, as_number(score.beta) * factor
    return replace(score, alpha=_number(alpha), beta=_number(beta))


def _number(value: Tensor) -> Number:
    """Return a tensor without axes as a number, which needs no memory per pair of tokens."""
    return value if value.dim() else float(value)


def _filled(args: Any, kwargs: Any, score: Score, first: Value) -> Score | None:
    if args[0] is not first:
        return None
    fill = args[2].data if isinstance(args[2], Value) else args[2]
    return _chosen(args[1], as_number(fill), as_number(score.beta), score)


def _where(args: Any, kwargs: Any, score: Score, first: Value) -> Score | None:
    mine = args[1] is first
    other = args[2 if mine else 1]
    if not isinstance(args[0], Value) or (isinstance(other, Value) and other.score is not None):
        return None
    filled = as_number(other.data if isinstance(other, Value) else other)
    data = isinstance(other, Value) and other.place is not None
    kept = as_number(score.beta)
    if mine:
        chosen = _chosen(args[0], kept, filled, score)
    else:
        chosen = _chosen(args[0], filled, kept, score)
    return replace(chosen, by_data=chosen.by_data or data)


def _chosen(condition: Value, yes: Tensor, no: Tensor, score: Score) -> Score:
    beta = torch.where(condition.data, yes, no)
    return replace(score, beta=beta, by_data=score.by_data or condition.place is not None)


CHANGES: dict[str, Callable[[Any, Any, Score, Value], Score | None]] = {
    "add": _added,
    "sub": _subtracted,
    "mul": _scaled,
    "div": _divided,
    "masked_fill": _filled,
    "where": _where,
}
