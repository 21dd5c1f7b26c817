"""Writes Fourier transforms of real values as those of complex ones, of which a half is cut.

ONNX infers the length of the input as that of a one-sided result, where the length is free.
onnxruntime plans its memory by that, and such a graph failed at other sizes: it reused a buffer of
another length.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir


def cut_transforms(graph: ir.Graph) -> None:
    """Replace one-sided transforms by whole ones and the first half of their results, in place."""
    for node in list(graph):
        is_real = node.op_type == "DFT" and not _number(node, "inverse")
        if is_real and not node.domain and _number(node, "onesided") and len(node.inputs) > 2:
            _cut(graph, node)


def _number(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    return 0 if attribute is None else attribute.as_int()


def _cut(graph: ir.Graph, node: ir.Node) -> None:
    length, axis = node.inputs[1], node.inputs[2]
    if length is None or axis is None:
        return
    made: list[ir.Node] = []

    def add(kind: str, *inputs: ir.Value) -> ir.Value:
        made.append(ir.node(kind, inputs))
        return made[-1].outputs[0]

    def constant(*numbers: int) -> ir.Value:
        tensor = ir.tensor(np.array(numbers, np.int64))
        made.append(ir.node("Constant", [], {"value": tensor}))
        return made[-1].outputs[0]

    vector = constant(1)
    half = add("Div", add("Reshape", length, vector), constant(2))
    count, along = add("Add", half, constant(1)), add("Reshape", axis, vector)
    whole = ir.node("DFT", node.inputs, {"onesided": 0, "inverse": 0})
    result = ir.node("Slice", [whole.outputs[0], constant(0), count, along])
    made += [whole, result]
    for each in made:
        each.metadata_props.update(node.metadata_props)
    graph.insert_before(node, made)
    before, after = node.outputs[0], result.outputs[0]
    after.name, after.type, after.shape = before.name, before.type, before.shape
    before.name = None
    ir.convenience.replace_all_uses_with(before, after)
    graph.remove(node)
