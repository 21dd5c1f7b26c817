"""Scores: products of queries and keys after element-wise operators and a softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import onnx_ir as ir
import torch
from torch import Tensor

from .masked_rows import axes_from_end, before_casts, empties_rows, is_of_scores
from .movement import read_integer
from .places import broadcasts
from .values import Hint, Number, Score, Step, Value, as_number, lighter

_ABSORBING = -1e30
"""A product of queries and keys that is added to a number below this one is rounded away."""
_LOW = -3e4
"""A key has no weight if its score is below this number and another key's score is finite: products
of queries and keys are below 1e4."""


Change = Callable[[Step, Score, int], Score | None]
"""Takes a step, the score of one of its inputs and the number of that input."""


def change_score(step: Step, change: Change | None) -> Score | None:
    """Return the score of the result of an element-wise operator, or None if it has none."""
    scores = [None if value is None else value.score for value in step.inputs]
    scored = []
    for at, score in enumerate(scores):
        if score is not None and score.hint is None:
            scored.append((at, score))
    if not scored:
        return None
    at, score = scored[0]
    out = step.outs[0]
    shape = tuple(score.number.shape)
    if shape != out and broadcasts(shape, out):
        score = replace(score, number=score.numbers.expand(out))
    if score.power is not None and (change is None or change is keep_score):
        if change is keep_score:
            return score
        return None
    if score.softmax is not None:
        return _behind_softmax(step, change, score, at, len(scored))
    if change is None:
        return None
    return change(step, score, at)


def _behind_softmax(
    step: Step,
    change: Change | None,
    score: Score,
    at: int,
    count: int,
) -> Score | None:
    if change is keep_score:
        return score
    is_only_choice = change is choose_score and at > 0 and count == 1
    if is_only_choice and empties_rows(step, score, at):
        return replace(score, emptied=True)
    if change is None or count > 1 or len(step.data()) > 1:
        return None
    return score.but(f"the weights are changed after the softmax ({step.node.op_type})")


def keep_score(step: Step, score: Score, at: int) -> Score | None:
    """The score itself."""
    return score


def _other(step: Step, at: int) -> tuple[Tensor | None, Value | None]:
    """Return the other operand as a constant or None, and its value."""
    place = 1 - at
    value = step.inputs[place]
    if value is None:
        return None, None
    if value.place is not None:
        return (None, value)
    return (step.constant(place), value)


def add_term(
    step: Step,
    score: Score,
    at: int,
    sign: int = 1,
) -> Score | None:
    """The score of a sum."""
    if at != 0 and sign < 0:
        return None
    other, value = _other(step, at)
    if value is not None and value.score is not None and value.score.hint is None:
        return score.but("scores of several products are added")
    if score.replaced is not None:
        raised = other is None
        if other is not None:
            highest = float((sign * other).max())
            raised = highest > -_LOW / 2
        if raised:
            score = score.but("a number that replaces scores is raised")
    if other is None:
        return replace(score, by_data=True)
    return replace(
        score,
        beta=lighter(_sum(score.beta, as_number(other), sign)),
        by_size=(*score.by_size, *step.list_varying_inputs()),
    )


def _sum(first: Number, second: Tensor, sign: int) -> Tensor:
    if sign > 0 and not isinstance(first, Tensor) and first == 0.0:
        return second
    return torch.add(as_number(first), second, alpha=sign)


def subtract_term(step: Step, score: Score, at: int) -> Score | None:
    """The score of a difference; that with the maximum of all keys changes no weight."""
    largest = step.node.inputs[1]
    maker = None if largest is None else largest.producer()
    is_max = at == 0 and maker is not None and maker.op_type == "ReduceMax"
    if maker is not None and is_max:
        of_scores = maker.inputs[0] is step.node.inputs[0]
        if of_scores:
            axes = axes_from_end(maker, step.sized, len(step.outs[0]))
            return replace(score, lowered=axes)
    return add_term(step, score, at, -1)


def multiply_score(step: Step, score: Score, at: int) -> Score | None:
    """The score of a product."""
    return _scale(step, score, at, lambda other: other)


def divide_score(step: Step, score: Score, at: int) -> Score | None:
    """The score of a quotient; exp divided by its sum is a softmax."""
    if at != 0:
        return None
    if score.power is not None:
        sums = step.node.inputs[1]
        maker = None if sums is None else sums.producer()
        if maker is None or maker.op_type != "ReduceSum" or maker.inputs[0] is not score.power:
            return None
        axes = axes_from_end(maker, step.sized, len(step.outs[0]))
        return _apply_softmax(replace(score, power=None), step.node, axes)
    return _scale(step, score, at, torch.reciprocal)


def _scale(
    step: Step,
    score: Score,
    at: int,
    change: Callable[[Tensor], Tensor],
) -> Score | None:
    if score.power is not None:
        return None
    other, value = _other(step, at)
    if value is not None and value.score is not None:
        return score.but("scores are multiplied with scores")
    if other is None:
        return score.but("a factor that depends on the input")
    if step.varies(1 - at):
        score = score.but("its scores have a factor that depends on the size of the image")
    factor = change(as_number(other))
    alpha = as_number(score.alpha) * factor
    beta = as_number(score.beta) * factor
    replaced = None if score.replaced is None else score.replaced * float(factor.min())
    return replace(score, alpha=lighter(alpha), beta=lighter(beta), replaced=replaced)


def choose_score(step: Step, score: Score, at: int) -> Score | None:
    """The score of ``Where``: that of a sum if what is written in its place hides a key.

    The product of queries and keys is added to the number that replaces it. That changes nothing
    for -inf and for numbers below `_ABSORBING`. Where the condition is known, numbers below `_LOW`
    are enough, unless they replace all scores of a query: `_apply_softmax` looks for these.
    """
    condition = step.inputs[0]
    other = step.inputs[3 - at] if at else None
    condition_value = step.node.inputs[0]
    if (
        at == 0
        or other is None
        or condition is None
        or condition_value is None
        or other.place is not None
    ):
        return None
    numbers = as_number(step.constant(3 - at))
    if step.varies(3 - at):
        return None
    if condition.place is not None:
        number = float(numbers.max())
        if number > _ABSORBING or is_of_scores(condition_value, step, score):
            return score.but(f"scores are replaced by {number:.4g} where the input says so")
        return replace(_replace_scores(score, number, condition_value, at), by_data=True)
    yes = step.constant(0).bool()
    yes = yes if at == 2 else ~yes
    mine = as_number(score.beta)
    shape = torch.broadcast_shapes(yes.shape, numbers.shape)
    places = yes.expand(shape)
    replacing = numbers.expand(places.shape)[places]
    number = float(replacing.max()) if replacing.numel() else -torch.inf
    if number > _LOW:
        return score.but(f"scores are replaced by {number:.4g}")
    beta = torch.where(yes, numbers, mine)
    by_size = (*score.by_size, *step.list_varying_inputs())
    score = replace(score, beta=beta, by_size=by_size)
    return _replace_scores(score, number, condition_value, at)


def _replace_scores(
    score: Score,
    number: float,
    condition: ir.Value,
    at: int,
) -> Score:
    if number == -torch.inf:
        mask = (before_casts(condition), at == 2)
        return replace(score, masks=(*score.masks, mask))
    highest = number if score.replaced is None else max(number, score.replaced)
    return replace(score, replaced=highest)


def begin_softmax(step: Step, score: Score, at: int) -> Score | None:
    """The score of ``Exp``: a softmax written in pieces begins."""
    return replace(score, power=step.node.outputs[0])


def apply_softmax(step: Step) -> Score | None:
    """Return the score of a softmax's result, or None if its input has none or is a softmax's."""
    value = step.inputs[0]
    score = None if value is None else value.score
    if score is not None and score.hint is None:
        if score.softmax is not None or score.power is not None:
            return None
        axis = read_integer(step.node, "axis", -1)
        rank = len(step.outs[0])
        from_end = axis - rank if axis >= 0 else axis
        return _apply_softmax(score, step.node, (from_end,))
    hint = None if value is None else value.hint
    if hint not in (Hint.CONSTANT_KEYS, Hint.CONSTANT_QUERIES):
        return None
    number = torch.empty(step.outs[0], dtype=torch.int64, device="meta")
    return Score(None, number, softmax=step.node, hint=hint)


def _apply_softmax(score: Score, node: ir.Node, axes: tuple[int, ...]) -> Score:
    """Return the score of the weights that a softmax along some axes gives.

    Args:
        score: The score.
        node: The softmax, or the quotient that ends one in pieces.
        axes: Its axes, counted from the end.
    """
    if score.lowered is not None and not set(axes) <= set(score.lowered):
        score = score.but("its scores are lowered by a maximum that is not that of all keys")
    score = replace(score, softmax=node, axes=axes, softened=(score.number, axes))
    if score.replaced is None or score.replaced <= _ABSORBING or not isinstance(score.beta, Tensor):
        return score
    highest = score.beta.amax(axes)
    if bool((highest <= _LOW / 2).any()):
        return score.but("all scores of some queries are replaced by a finite number")
    return score


def find_unserved_reason(hint: Hint | None, *, constant: bool) -> str:
    """Return why weights that are multiplied with values are not supported attention, or "".

    A softmax of a linear layer, multiplied with values that depend on the input, may be linear
    attention, whose softmax normalizes features. It is not reported.

    Args:
        hint: Of the scores of the weights.
        constant: Whether the values do not depend on the input.
    """
    if hint is None or (hint is Hint.CONSTANT_KEYS and not constant):
        return ""
    return hint.value
