"""Computes values that depend on parameters alone once, such as biases by a small network."""

from __future__ import annotations

import math

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from ...core.arrays import Array
from ..execute.parts import PartRunner, Values, is_held, names_read, parts_of
from ..execute.sites import scheduled
from ..rewrite.fixing import write_constant
from ..search.operators import Kind, rule_of

_GROWTH = 2
"""Largest size of a computed value, as a multiple of the floating-point tensors it depends on."""

_RANDOM = ("Random", "Bernoulli", "Multinomial")


def fold_constants(model: ir.Model) -> None:
    """Replace values that depend on parameters and no input by constants, in place.

    Values that are only moved stay, and values much larger than what they are made of.

    Raises:
        UnsupportedModelError: onnxruntime cannot compute such a value.
    """
    graph = model.graph
    made_of = _sources(graph)
    border = {
        held: None
        for node in graph
        if node.outputs[0] not in made_of
        for held in names_read(node)
        if _is_computed(held, made_of)
    }
    if not border:
        return
    inside = [node for node in graph if node.outputs[0] in made_of]
    wanted = {str(held.name): held for held in border}
    values: Values = {}
    for part in parts_of(scheduled(inside, wanted), wanted):
        values |= PartRunner(model).run(part, values)
    for name, held in wanted.items():
        array: Array = values[name].numpy()
        if _is_small(array, made_of[held]):
            write_constant(graph, held, array, "folded")
    RemoveUnusedNodesPass()(model)


def _sources(graph: ir.Graph) -> dict[ir.Value, frozenset[ir.Value]]:
    """Return the parameters that each value depends on that depends on no input."""
    sources: dict[ir.Value, frozenset[ir.Value]] = {}
    for node in graph:
        read = list(names_read(node))
        constant = node.op_type == "Constant" or (
            bool(read) and all(is_held(held) or held in sources for held in read)
        )
        if not constant or node.op_type.startswith(_RANDOM):
            continue
        held = frozenset(held for held in read if is_held(held))
        every = held.union(*(sources.get(one, frozenset()) for one in read))
        sources.update(dict.fromkeys(node.outputs, every))
    return sources


def _is_computed(held: ir.Value, made_of: dict[ir.Value, frozenset[ir.Value]]) -> bool:
    """Return whether a constant value is the result of other operators than movements."""
    todo = [held]
    while todo:
        node = todo.pop().producer()
        if node is None or node.outputs[0] not in made_of or node.op_type == "Constant":
            continue
        rule = rule_of(node)
        if rule is None or rule.kind is not Kind.MOVES:
            return True
        todo += [held for held in node.inputs[:1] if held is not None]
    return False


def _is_small(array: Array, sources: frozenset[ir.Value]) -> bool:
    """Return whether a value is floating-point and at most `_GROWTH` times as large as these."""
    tensors = [held.const_value for held in sources if held.const_value is not None]
    floating = [tensor for tensor in tensors if tensor.dtype.is_floating_point()]
    size = sum(math.prod(tensor.shape.numpy()) for tensor in floating)
    return array.dtype.kind == "f" and array.size <= _GROWTH * size
