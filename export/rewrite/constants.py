"""Writes constants in place of what depends on no pixel: at one size, or on parameters alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from ...core.arrays import Array
from ...runtime.ort_values import copy_from_ort
from ..execute.parts import PartRunner, Values, constant_of, is_held, names_read, parts_of
from ..execute.sites import scheduled
from ..execute.sized import at_size
from ..search.operators import Kind, rule_of
from .sources import inputs_of, kind_of

_GROWTH = 2
"""Largest size of a computed value, as a multiple of the floating-point tensors it depends on."""

_SMALL = 1 << 14
"""Elements that a computed value may have in any case."""

_RANDOM = ("Random", "Bernoulli", "Multinomial")


def fix_sizes(model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Write the graph of one size of its inputs, in place.

    Args:
        model: The graph, with nodes of nystra but without bodies.
        shapes: Shape of each input.

    Raises:
        UnsupportedModelError: onnxruntime cannot compute it, or it needs too much memory.
    """
    inputs = inputs_of(model)
    feeds = {
        str(value.name): np.zeros(shapes[str(value.name)], ir.DataType(kind_of(value)).numpy())
        for value in inputs
    }
    sized = at_size(model, feeds)
    graph = model.graph
    for value in inputs:
        value.shape = ir.Shape(shapes[str(value.name)])
    held: dict[str, ir.Value] = {}
    for node in list(graph):
        if any(str(value.name) in sized.data for value in node.outputs):
            for value in list(names_read(node)):
                producer = value.producer()
                if producer is not None and str(value.name) not in sized.data:
                    held.setdefault(str(value.name), value)
    for value in held.values():
        write_constant(graph, value, copy_from_ort(sized.held(value)), "fixed")


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


def write_constant(graph: ir.Graph, value: ir.Value, array: Array, suffix: str) -> None:
    """Let a graph read an array wherever it reads a value, under its name with a suffix."""
    tensor = ir.tensor(np.asarray(array, order="C"))  # ascontiguousarray gives a scalar an axis
    constant = constant_of(f"{value.name}_{suffix}", tensor)
    graph.register_initializer(constant)
    ir.convenience.replace_all_uses_with(value, constant)
