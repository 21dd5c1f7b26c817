"""Writes constants in place of what depends on no pixel: at one size, or on parameters alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from ...core.arrays import Array
from ...core.ports.port import Shape
from ...runtime.ort_values import copy_from_ort
from ..execute.parts import (
    RANDOM,
    PartRunner,
    Values,
    cut_into_parts,
    find_reads,
    is_stored,
    make_constant,
)
from ..execute.sites import select_nodes
from ..execute.sized import infer_sizes
from ..search.operators import Kind, rule_of
from .sources import inputs_of, make_zero_inputs

_GROWTH = 2
"""Largest size of a computed value, as a multiple of the floating-point tensors it depends on."""

_SMALL = 1 << 14
"""Elements that a computed value may have in any case."""


def fix_sizes(model: ir.Model, shapes: Mapping[str, Shape]) -> None:
    """Write the graph of one size of its inputs, in place.

    Args:
        model: The graph, with nodes of nystra but without bodies.
        shapes: Shape of each input.

    Raises:
        UnsupportedModelError: onnxruntime cannot compute it, or it needs too much memory.
    """
    inputs = inputs_of(model)
    sized = infer_sizes(model, make_zero_inputs(model, shapes))
    graph = model.graph
    for value in inputs:
        value.shape = ir.Shape(shapes[str(value.name)])
    constants: dict[str, ir.Value] = {}
    for node in list(graph):
        if any(sized.follows_input(value) for value in node.outputs):
            for value in list(find_reads(node)):
                producer = value.producer()
                if producer is not None and not sized.follows_input(value):
                    constants.setdefault(str(value.name), value)
    for value in constants.values():
        write_constant(graph, value, copy_from_ort(sized.ort_value(value)), "fixed")


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
    todo = [
        ir_value
        for node in graph
        if node.outputs[0] not in made_of
        for ir_value in find_reads(node)
    ]
    runner = PartRunner(model)
    seen = set[ir.Value]()
    while todo:
        requested: dict[str, ir.Value] = {}
        while todo:
            ir_value = todo.pop()
            if ir_value in seen or not _is_computed(ir_value, made_of):
                continue
            seen.add(ir_value)
            if ir_value.shape is None or _is_small(ir_value.shape.dims, made_of[ir_value]):
                requested[str(ir_value.name)] = ir_value
            else:
                todo += _read_by_maker(ir_value)
        values: Values = {}
        for part in cut_into_parts(select_nodes(inside, requested), requested):
            values |= runner.run(part, values)
        for name, ir_value in requested.items():
            array = copy_from_ort(values[name])
            if not _is_small(array.shape, made_of[ir_value]):
                todo += _read_by_maker(ir_value)
            elif array.dtype.kind == "f":
                write_constant(graph, ir_value, array, "folded")
    if seen:
        RemoveUnusedNodesPass()(model)


def _sources(graph: ir.Graph) -> dict[ir.Value, frozenset[ir.Value]]:
    """Return the parameters that each value depends on that depends on no input."""
    sources: dict[ir.Value, frozenset[ir.Value]] = {}
    for node in graph:
        read = list(find_reads(node))
        constant = node.op_type == "Constant" or (
            bool(read) and all(is_stored(value) or value in sources for value in read)
        )
        if not constant or node.op_type.startswith(RANDOM):
            continue
        parameters = frozenset(value for value in read if is_stored(value))
        sources_read = [sources.get(value, frozenset()) for value in read]
        every = parameters.union(*sources_read)
        sources.update(dict.fromkeys(node.outputs, every))
    return sources


def _is_computed(ir_value: ir.Value, made_of: dict[ir.Value, frozenset[ir.Value]]) -> bool:
    """Return whether a constant value is the result of other operators than movements."""
    todo = [ir_value]
    while todo:
        node = todo.pop().producer()
        if node is None or node.outputs[0] not in made_of or node.op_type == "Constant":
            continue
        rule = rule_of(node)
        if rule is None or rule.kind is not Kind.MOVES:
            return True
        todo += [ir_value for ir_value in node.inputs[:1] if ir_value is not None]
    return False


def _read_by_maker(ir_value: ir.Value) -> list[ir.Value]:
    node = ir_value.producer()
    if node is None:
        return []
    return list(find_reads(node))


def _is_small(shape: Sequence[object], sources: frozenset[ir.Value]) -> bool:
    """Return whether a value is small, itself or compared with what it is made of.

    Sides that are not known count as one.
    """
    tensors = [parameter.const_value for parameter in sources if parameter.const_value is not None]
    floating = [tensor for tensor in tensors if tensor.dtype.is_floating_point()]
    size = sum(math.prod(tensor.shape.numpy()) for tensor in floating)
    sides = [side for side in shape if isinstance(side, int)]
    return math.prod(sides) <= max(_GROWTH * size, _SMALL)


def write_constant(
    graph: ir.Graph,
    value: ir.Value,
    array: Array,
    suffix: str,
) -> None:
    """Let a graph read an array wherever it reads a value, under its name with a suffix."""
    tensor = ir.tensor(np.asarray(array, order="C"))  # ascontiguousarray gives a scalar an axis
    constant = make_constant(f"{value.name}_{suffix}", tensor)
    graph.register_initializer(constant)
    ir.convenience.replace_all_uses_with(value, constant)
