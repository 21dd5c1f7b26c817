"""Simpler replacements of nodes whose sizes are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

if TYPE_CHECKING:
    from .static_graph import StaticGraph, Tensor

RANK = 4
"""Most axes of a tensor that every engine supports."""


def simplify(graph: StaticGraph, node: onnx.NodeProto, outputs: list[Tensor]) -> str | None:
    """Return the output of a node with one output, computed by simpler nodes or none.

    Args:
        graph: The graph for new nodes.
        node: A node with its inputs in the graph.
        outputs: Type and shape of its outputs.

    Returns:
        None if the node should be kept.
    """
    rule = _RULES.get(node.op_type)
    if rule is None or node.domain or len(node.output) != 1:
        return None
    return rule(graph, node, outputs[0])


def _attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return helper.get_attribute_value(attribute)
    return default


def _if_same(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
    first = graph.tensors[node.input[0]]
    same = (first.kind, first.shape) == (output.kind, output.shape)
    if same:
        return str(node.input[0])
    return None


def _cast_like(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
    return graph.op("Cast", node.input[0], to=output.kind)


def _shape(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
    sizes = graph.tensors[node.input[0]].shape
    chosen = sizes[_attribute(node, "start", 0) : _attribute(node, "end")]
    return graph.constant(np.array(chosen, np.int64))


def _reshape(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
    """Write one Reshape for several in a row, with all sizes in numbers."""
    source = node.input[0]
    while source in graph.producers and graph.producers[source].op_type == "Reshape":
        source = graph.producers[source].input[0]
    if graph.tensors[source].shape == output.shape:
        return str(source)
    shape = graph.constant(np.array(output.shape, np.int64))
    if node.op_type == "Reshape" and list(node.input) == [source, shape]:
        return None
    return graph.op("Reshape", source, shape)


def _transpose(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
    source = node.input[0]
    shape = graph.tensors[node.input[0]].shape
    reversed_axes = range(len(shape))[::-1]
    order = list(_attribute(node, "perm", reversed_axes))
    before = graph.producers.get(source)
    if before is not None and before.op_type == "Transpose":
        inner = _attribute(before, "perm", reversed_axes)
        order = [inner[axis] for axis in order]
        return graph.op("Transpose", before.input[0], perm=order)
    moving = [axis for axis in order if shape[axis] != 1]
    if moving == sorted(moving):
        return graph.reshape(source, output.shape)
    if len(shape) <= RANK:
        return None
    groups = _group_adjacent(moving)
    if len(groups) >= len(shape):
        return None
    sizes = {}
    for group in groups:
        sizes[group[0]] = math.prod(shape[axis] for axis in group)
    firsts = sorted(sizes)
    new_sizes = tuple(sizes[first] for first in firsts)
    fewer = graph.reshape(source, new_sizes)
    new_order = [firsts.index(group[0]) for group in groups]
    moved = graph.op("Transpose", fewer, perm=new_order)
    return graph.reshape(moved, output.shape)


def _group_adjacent(order: list[int]) -> list[list[int]]:
    places = {axis: index for index, axis in enumerate(sorted(order))}
    groups: list[list[int]] = []
    for axis in order:
        if groups and places[axis] == places[groups[-1][-1]] + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _concat(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
    shapes = {name: graph.tensors[name].shape for name in node.input}
    parts = [name for name in node.input if math.prod(shapes[name])]
    if len(parts) == len(node.input) > 1:
        return None
    if len(parts) == 1:
        return str(parts[0])
    return graph.op("Concat", *parts, axis=_attribute(node, "axis"))


def _gather(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
    source = node.input[0]
    index = graph.value(node.input[1])
    shape = graph.tensors[source].shape
    axis = _attribute(node, "axis", 0) % len(shape)
    if index is None or index.ndim > 1 or not index.size:
        return None
    from_start = np.where(index < 0, index + shape[axis], index)
    places = from_start.reshape(-1)
    run = np.arange(places[0], places[0] + len(places))
    if not np.array_equal(places, run):
        return None
    numbers = (places[0], places[-1] + 1, axis)
    arrays = [np.array([number], np.int64) for number in numbers]
    ends = list(map(graph.constant, arrays))
    part = graph.op("Slice", source, *ends)
    return graph.reshape(part, output.shape)


def _where(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
    condition = graph.value(node.input[0])
    if condition is None or not (condition.all() or not condition.any()):
        return None
    chosen = node.input[1] if condition.all() else node.input[2]
    if graph.tensors[chosen].shape == output.shape:
        return str(chosen)
    shape = graph.constant(np.array(output.shape, np.int64))
    return graph.op("Expand", chosen, shape)


def _pad(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
    pads = graph.value(node.input[1])
    if pads is not None and not pads.any():
        return str(node.input[0])
    return None


def _with_fewer_axes(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
    """Write an element-wise node with merged axes where both inputs have the same ones."""
    rank = len(output.shape)
    if rank <= RANK:
        return None
    shapes = []
    for name in node.input:
        padded = (1,) * rank + graph.tensors[name].shape
        shapes.append(padded[-rank:])
    sides = zip(*shapes, strict=True)
    axes = [sizes for sizes in sides if max(sizes) > 1]
    groups = [list(group) for _, group in groupby(axes, _are_ones)]
    if len(groups) >= rank:
        return None
    inputs = []
    for index, name in enumerate(node.input):
        lengths_of_groups = []
        for group in groups:
            lengths = [sizes[index] for sizes in group]
            lengths_of_groups.append(math.prod(lengths))
        inputs.append(graph.reshape(name, tuple(lengths_of_groups)))
    result = graph.op(node.op_type, *inputs)
    return graph.reshape(result, output.shape)


def _are_ones(sizes: Sequence[int]) -> list[bool]:
    return [size == 1 for size in sizes]


def _neutral(number: float) -> Callable[[StaticGraph, onnx.NodeProto, Tensor], str | None]:
    """Return the rule of an operator that has no effect if its second input is a given number."""

    def rule(graph: StaticGraph, node: onnx.NodeProto, output: Tensor) -> str | None:
        second = graph.value(node.input[1])
        if second is not None and (second == number).all():
            return _if_same(graph, node, output)
        return _with_fewer_axes(graph, node, output)

    return rule


_RULES: dict[str, Callable[[StaticGraph, onnx.NodeProto, Tensor], str | None]] = {
    "Identity": _if_same,
    "Cast": _if_same,
    "CastLike": _cast_like,
    "Expand": _if_same,
    "Slice": _if_same,
    "Shape": _shape,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Transpose": _transpose,
    "Concat": _concat,
    "Gather": _gather,
    "Where": _where,
    "Pad": _pad,
    "Add": _neutral(0.0),
    "Sub": _neutral(0.0),
    "Mul": _neutral(1.0),
    "Div": _neutral(1.0),
}
