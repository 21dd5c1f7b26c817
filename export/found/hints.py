"""Recognizes attention whose softmax is not of a matrix product, to report it by name."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from ..search.hints import Hint
from .movement import MOVES
from .scores import CHANGES, KEEPS
from .values import Score, Value

_SUMS = ("sum", "mean")
_MATRICES = ("mm", "bmm", "matmul")


def hint_of(name: str, values: list[Value]) -> Hint | None:
    """Return the hint for the results of an operator, or None.

    Args:
        name: Name of the operator.
        values: All its tensor inputs, in order.
    """
    data = [value for value in values if value.place is not None]
    if name == "mul" and len(data) == 2 and data[0] is not data[1]:
        return Hint.PRODUCTS
    if name in _MATRICES and len(values) == 2 and len(data) == 1:
        return Hint.CONSTANT_KEYS if values[0] is data[0] else Hint.CONSTANT_QUERIES
    hints = {value.hint for value in data}
    if len(hints) != 1:
        return None
    hint = hints.pop()
    if name in _SUMS:
        return Hint.SUMS if hint is Hint.PRODUCTS else None
    return hint if name in MOVES or name in KEEPS or name in CHANGES else None


def hinted_score(hint: Hint | None, softmax: fx.Node, out: Tensor) -> Score | None:
    """Return the score of weights that may be multiplied with values, or None.

    Args:
        hint: Hint of the input of the softmax.
        softmax: Node of the softmax.
        out: Its result; the score has the same shape.
    """
    if hint not in (Hint.CONSTANT_KEYS, Hint.CONSTANT_QUERIES):
        return None
    number = torch.arange(out.numel()).reshape(out.shape)
    return Score(softmax, number, softmax=softmax, hint=hint)
