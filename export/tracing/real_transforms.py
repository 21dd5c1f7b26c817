"""Writes Fourier transforms of real values as those of complex ones, of which a half is cut.

ONNX infers the length of the input as that of a one-sided result, where the length is free.
onnxruntime plans its memory by that, and such a graph failed at other sizes: it reused a buffer of
another length.
"""

from __future__ import annotations

import onnx_ir as ir

from .added_nodes import AddedNodes


def cut_transforms(graph: ir.Graph) -> None:
    """Replace one-sided transforms by whole ones and the first half of their results, in place."""
    for node in list(graph):
        if node.op_type != "DFT" or node.domain or _number(node, "inverse"):
            continue
        if _number(node, "onesided") and len(node.inputs) > 2:
            _cut(graph, node)


def _number(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    return 0 if attribute is None else attribute.as_int()


def _cut(graph: ir.Graph, node: ir.Node) -> None:
    length, axis = node.inputs[1], node.inputs[2]
    if length is None or axis is None:
        return
    nodes = AddedNodes()
    vector = nodes.integers(1)
    length_of_one = nodes.op("Reshape", [length, vector])
    two = nodes.integers(2)
    half = nodes.op("Div", [length_of_one, two])
    one = nodes.integers(1)
    count = nodes.op("Add", [half, one])
    along = nodes.op("Reshape", [axis, vector])
    two_sided = {"onesided": 0, "inverse": 0}
    whole = nodes.op("DFT", node.inputs, two_sided)
    start = nodes.integers(0)
    after = nodes.op("Slice", [whole, start, count, along])
    nodes.insert_before(node)
    before = node.outputs[0]
    after.name = before.name
    after.type = before.type
    after.shape = before.shape
    before.name = None
    ir.convenience.replace_all_uses_with(before, after)
    graph.remove(node)
