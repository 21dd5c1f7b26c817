"""Computes values that depend on parameters alone once, such as biases by a small network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from ...runtime.ort_values import copy_from_ort
from ..execute.parts import PartRunner, Values, is_held, names_read, parts_of
from ..execute.sites import scheduled
from ..rewrite.fixing import write_constant
from ..search.operators import Kind, rule_of

_GROWTH = 2
"""Largest size of a computed value, as a multiple of the floating-point tensors it depends on."""

_SMALL = 1 << 14
"""Elements that a computed value may have in any case."""

_RANDOM = ("Random", "Bernoulli", "Multinomial")


def fold_constants(model: ir.Model) -> None:
    """Replace values that depend on parameters and no input by constants, in place.

    Values that are only moved stay, and so do values much larger than what they are made of: the
    last smaller ones that these are computed from are replaced.

    Raises:
        UnsupportedModelError: onnxruntime cannot compute such a value.
    """
    graph = model.graph
    made_of = _sources(graph)
    inside = [node for node in graph if node.outputs[0] in made_of]
    todo = [held for node in graph if node.outputs[0] not in made_of for held in names_read(node)]
    runner, seen = PartRunner(model), set[ir.Value]()
    while todo:
        wanted: dict[str, ir.Value] = {}
        while todo:
            held = todo.pop()
            if held in seen or not _is_computed(held, made_of):
                continue
            seen.add(held)
            if held.shape is None or _is_small(held.shape.dims, made_of[held]):
                wanted[str(held.name)] = held
            else:
                todo += _read_by_maker(held)
        values: Values = {}
        for part in parts_of(scheduled(inside, wanted), wanted):
            values |= runner.run(part, values)
        for name, held in wanted.items():
            array = copy_from_ort(values[name])
            if not _is_small(array.shape, made_of[held]):
                todo += _read_by_maker(held)
            elif array.dtype.kind == "f":
                write_constant(graph, held, array, "folded")
    if seen:
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


def _read_by_maker(held: ir.Value) -> list[ir.Value]:
    node = held.producer()
    return [] if node is None else list(names_read(node))


def _is_small(shape: Sequence[object], sources: frozenset[ir.Value]) -> bool:
    """Return whether a value is small, itself or compared with what it is made of.

    Sides that are not known count as one.
    """
    tensors = [held.const_value for held in sources if held.const_value is not None]
    floating = [tensor for tensor in tensors if tensor.dtype.is_floating_point()]
    size = sum(math.prod(tensor.shape.numpy()) for tensor in floating)
    known = [side for side in shape if isinstance(side, int)]
    return math.prod(known) <= max(_GROWTH * size, _SMALL)
