"""Scores: products of queries and keys after element-wise operators and a softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir
import torch
from torch import Tensor

from ..execute.sized import Sized
from .places import broadcasts
from .values import Hint, Number, Score, Value, as_number, lighter


@dataclass(frozen=True)
class Step:
    """One node with its values at the size of the search.

    Attributes:
        node: The node.
        inputs: Values of its inputs; None for one that is omitted.
        outs: Shapes of its results.
        sized: The graph at that size.
    """

    node: ir.Node
    inputs: Sequence[Value | None]
    outs: Sequence[tuple[int, ...]]
    sized: Sized

    def data(self) -> list[int]:
        """Return the numbers of the inputs that depend on pixels."""
        return [at for at, v in enumerate(self.inputs) if v is not None and v.place is not None]

    def constant(self, at: int) -> Tensor:
        """Return an input that depends on no pixel, by its number."""
        held = self.node.inputs[at]
        if held is None:
            raise ValueError(f"{self.node.op_type} without its input {at}")
        return self.sized.constant(held)


Change = Callable[[Step, Score, int], Score | None]
"""Takes a step, the score of one of its inputs and the number of that input."""


def changed(step: Step, change: Change | None) -> Score | None:
    """Return the score of the result of an element-wise operator, or None if it has none."""
    scored = [
        at
        for at, v in enumerate(step.inputs)
        if v is not None and v.score is not None and v.score.hint is None
    ]
    if not scored:
        return None
    at, out = scored[0], step.outs[0]
    value = step.inputs[at]
    score = None if value is None else value.score
    if score is None:
        return None
    if tuple(score.number.shape) != out and broadcasts(score.number.shape, out):
        score = replace(score, number=score.numbers.expand(out))
    if score.power is not None and (change is None or change is kept):
        return score if change is kept else None
    if score.softmax is not None:
        return _behind_softmax(step, change, score, at, scored)
    return None if change is None else change(step, score, at)


def _behind_softmax(
    step: Step, change: Change | None, score: Score, at: int, scored: Sequence[int]
) -> Score | None:
    if change is kept:
        return score
    if change is chosen and at > 0 and len(scored) == 1:
        return score  # a safe softmax replaces rows whose keys are all masked
    if change is None or len(scored) > 1 or len(step.data()) > 1:
        return None
    return score.but(f"the weights are changed after the softmax ({step.node.op_type})")


def kept(step: Step, score: Score, at: int) -> Score | None:
    """The score itself."""
    return score


def _other(step: Step, at: int) -> tuple[Tensor | None, Value | None]:
    """Return the other operand as a constant or None, and its value."""
    place = 1 - at
    value = step.inputs[place]
    if value is None:
        return None, None
    return (None, value) if value.place is not None else (step.constant(place), value)


def added(step: Step, score: Score, at: int, sign: int = 1) -> Score | None:
    """The score of a sum."""
    if at != 0 and sign < 0:
        return None
    other, value = _other(step, at)
    if value is not None and value.score is not None and value.score.hint is None:
        return score.but("scores of several products are added")
    if other is None:
        return replace(score, by_data=True)
    return replace(score, beta=lighter(_sum(score.beta, as_number(other), sign)))


def _sum(first: Number, second: Tensor, sign: int) -> Tensor:
    if sign > 0 and not isinstance(first, Tensor) and first == 0.0:
        return second
    return torch.add(as_number(first), second, alpha=sign)


def subtracted(step: Step, score: Score, at: int) -> Score | None:
    """The score of a difference; that with the maximum of all keys changes no weight."""
    largest = step.node.inputs[1]
    maker = None if largest is None else largest.producer()
    is_max = at == 0 and maker is not None and maker.op_type == "ReduceMax"
    if maker is not None and is_max and maker.inputs[0] is step.node.inputs[0]:
        return score
    return added(step, score, at, -1)


def multiplied(step: Step, score: Score, at: int) -> Score | None:
    """The score of a product."""
    return _scaled(step, score, at, lambda other: other)


def divided(step: Step, score: Score, at: int) -> Score | None:
    """The score of a quotient; exp divided by its sum is a softmax."""
    if at != 0:
        return None
    if score.power is not None:
        sums = step.node.inputs[1]
        maker = None if sums is None else sums.producer()
        if maker is not None and maker.op_type == "ReduceSum" and maker.inputs[0] is score.power:
            return replace(score, power=None, softmax=step.node)
        return None
    return _scaled(step, score, at, torch.reciprocal)


def _scaled(step: Step, score: Score, at: int, turned: Callable[[Tensor], Tensor]) -> Score | None:
    if score.power is not None:
        return None
    other, value = _other(step, at)
    if value is not None and value.score is not None:
        return score.but("scores are multiplied with scores")
    if other is None:
        return score.but("a factor that depends on the input")
    factor = turned(as_number(other))
    alpha, beta = as_number(score.alpha) * factor, as_number(score.beta) * factor
    return replace(score, alpha=lighter(alpha), beta=lighter(beta))


def chosen(step: Step, score: Score, at: int) -> Score | None:
    """The score of ``Where``."""
    condition, other = step.inputs[0], step.inputs[3 - at] if at else None
    if at == 0 or other is None or condition is None or other.score is not None:
        return None
    if condition.place is not None or other.place is not None:
        return replace(score, by_data=True)
    mine, theirs = as_number(score.beta), as_number(step.constant(3 - at))
    yes, no = (mine, theirs) if at == 1 else (theirs, mine)
    return replace(score, beta=torch.where(step.constant(0).bool(), yes, no))


def raised(step: Step, score: Score, at: int) -> Score | None:
    """The score of ``Exp``: a softmax written in pieces begins."""
    return replace(score, power=step.node.outputs[0])


def softmax(step: Step) -> Score | None:
    """Return the score of a softmax's result, or None if its input has none or is a softmax's."""
    value = step.inputs[0]
    score = None if value is None else value.score
    if score is not None and score.hint is None:
        if score.softmax is not None or score.power is not None:
            return None
        return replace(score, softmax=step.node)
    hint = None if value is None else value.hint
    if hint not in (Hint.CONSTANT_KEYS, Hint.CONSTANT_QUERIES):
        return None
    number = torch.empty(step.outs[0], dtype=torch.int64, device="meta")
    return Score(None, number, softmax=step.node, hint=hint)


def unserved(hint: Hint | None, *, constant: bool) -> str:
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
