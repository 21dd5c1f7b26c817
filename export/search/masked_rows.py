"""Conditions of masks: which are about scores, and which tell the queries that have no key."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir
import torch

from ..execute.parts import find_reads
from ..execute.sized import Sized
from .movement import read_attribute
from .places import is_zero
from .values import Score, Step, as_number

_MOST_NODES = 64
"""Most nodes that a condition is followed back through."""

Meaning = tuple[Literal["keys", "rows"], bool]
"""Whether a value tells hidden keys or queries without a key, and whether it is true there."""


def axes_from_end(node: ir.Node, sized: Sized, rank: int) -> tuple[int, ...]:
    """Return the axes that a node reduces, counted from the end; all if it does not name them.

    Axes that were computed and are not kept are those whose length changes.
    """
    named = node.inputs[1] if len(node.inputs) > 1 else None
    if named is not None:
        fixed = ir.convenience.get_const_tensor(named)
        if fixed is not None:
            axes = fixed.numpy().tolist()
        elif sized.is_constant(named):
            axes = sized.constant(named).flatten().tolist()
        else:
            return _find_changed_axes(node, sized)
    else:
        axes = list(read_attribute(node, "axes", ()))  # type: ignore[call-overload]
    axes = axes or list(range(rank))
    return tuple(axis - rank if axis >= 0 else axis for axis in axes)


def _find_changed_axes(node: ir.Node, sized: Sized) -> tuple[int, ...]:
    before = _shape_of(node.inputs[0], sized)
    after = _shape_of(node.outputs[0], sized)
    if len(before) != len(after):
        return ()
    changed = [axis for axis, length in enumerate(before) if length != after[axis]]
    return tuple(axis - len(before) for axis in changed)


def _shape_of(value: ir.Value | None, sized: Sized) -> tuple[int, ...]:
    if value is None:
        return ()
    return sized.shape_of(value)


def before_casts(value: ir.Value) -> ir.Value:
    """Return the value that a chain of casts begins with."""
    while (node := value.producer()) is not None and node.op_type == "Cast":
        source = node.inputs[0]
        if source is None:
            break
        value = source
    return value


def is_of_scores(condition: ir.Value, step: Step, score: Score) -> bool:
    """Return whether a condition depends on the product of the scores, or may do."""
    if score.product is None:
        return True
    product = score.product.node
    seen = set[ir.Node]()
    todo = [condition]
    while todo:
        node = todo.pop().producer()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node is product or len(seen) > _MOST_NODES:
            return True
        reads = find_reads(node)
        todo += [value for value in reads if step.sized.follows_input(value)]
    return False


def empties_rows(step: Step, score: Score, at: int) -> bool:
    """Return whether a ``Where`` behind the softmax sets to zero what queries without a key have.

    All scores of such a query are -inf, and its weights NaN.

    Args:
        step: The ``Where``.
        score: The weights.
        at: Number of the input that they are.
    """
    numbers = step.inputs[3 - at]
    condition = step.node.inputs[0]
    if numbers is None or numbers.place is not None or condition is None:
        return False
    if not is_zero(as_number(step.constant(3 - at))):
        return False
    if step.inputs[0] is not None and step.inputs[0].place is None and not step.varies(0):
        zeroed = step.constant(0).bool() == (at == 2)
        hidden = as_number(score.beta) == -torch.inf
        empty = hidden.all(-1, keepdim=True)
        return bool((zeroed == empty).all())
    return _find_meaning(condition, step, score) == ("rows", at == 2)


def _find_meaning(value: ir.Value, step: Step, score: Score) -> Meaning | None:
    """Return what a value tells of the keys or queries of weights, or None."""
    for mask, hidden in score.masks:
        if value is mask:
            return "keys", hidden
    node = value.producer()
    source = node.inputs[0] if node is not None and node.inputs else None
    if node is None or source is None or score.softmax is None:
        return None
    if node.op_type == "IsNaN":
        if source is score.softmax.outputs[0]:
            return ("rows", True)
        return None
    if node.op_type in ("Equal", "IsInf"):
        if _finds_hidden(node, source, score):
            return ("keys", True)
        return None
    meaning = _find_meaning(source, step, score)
    if meaning is None or node.op_type == "Cast":
        return meaning
    kind, hidden = meaning
    if node.op_type == "Not":
        return kind, not hidden
    if node.op_type == "Greater" and kind == "rows":
        if _is_number(node.inputs[1], 0.0):
            return meaning
        return None
    reduction = ("ReduceMin", "ReduceProd") if hidden else ("ReduceMax", "ReduceSum")
    if node.op_type not in reduction or kind == "rows":
        return None
    before = _shape_of(source, step.sized)
    after = _shape_of(node.outputs[0], step.sized)
    along = axes_from_end(node, step.sized, len(before)) == score.axes
    if along and 0 < len(before) == len(after):
        return ("rows", hidden)
    return None


def _finds_hidden(node: ir.Node, source: ir.Value, score: Score) -> bool:
    """Return whether a node compares the input of the softmax, or its biases, with -inf."""
    scores = None if score.softmax is None else score.softmax.inputs[0]
    maker = None if scores is None else scores.producer()
    biased = maker is not None and maker.op_type == "Add" and source in maker.inputs
    if source is not scores and not biased:
        return False
    return node.op_type == "IsInf" or _is_number(node.inputs[1], -torch.inf)


def _is_number(value: ir.Value | None, number: float) -> bool:
    fixed = None if value is None else ir.convenience.get_const_tensor(value)
    if fixed is None or fixed.size != 1:
        return False
    return float(fixed.numpy().item()) == number
