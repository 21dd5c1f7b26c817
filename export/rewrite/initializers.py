"""The graph of a file as one that was traced: its constants are initializers, its nodes have names.

What changes the arithmetic of a graph knows weights by that; a file may have them as nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..execute.editing import PassResult, drop_unread, replace_nodes

_KINDS: dict[str, type[np.generic]] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


def make_initializers(model: onnx.ModelProto) -> PassResult:
    """Make initializers of the constants of a graph, and name its nodes, in place.

    Constants are initializers that are inputs too, nodes of type ``Constant``, and nodes that only
    move a constant.
    """
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for index in reversed(range(len(graph.input))):
        if graph.input[index].name in constants:
            del graph.input[index]
    outputs = {value.name for value in graph.output}
    uses = Counter(node.name for node in graph.node)
    nodes = []
    for node in graph.node:
        constant = None if outputs & set(node.output) else _constant(node, constants)
        if constant is not None:
            constant.name = node.output[0]
            constants[constant.name] = constant
            graph.initializer.append(constant)
            continue
        if not node.name or uses[node.name] > 1:
            node.name = node.output[0]
        nodes.append(node)
    replace_nodes(graph, nodes)
    drop_unread(graph)
    return PassResult(model)


def _constant(node: onnx.NodeProto, constants: Mapping[str, TensorProto]) -> TensorProto | None:
    if node.domain != "":
        return None
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    constant = TensorProto()
    if node.op_type == "Constant" and "value" in attributes:
        constant.CopyFrom(attributes["value"])
        return constant
    if node.op_type == "Constant" and set(attributes) <= set(_KINDS):
        ((name, value),) = attributes.items()
        return numpy_helper.from_array(np.array(value, _KINDS[name]))
    source = constants.get(node.input[0]) if node.input else None
    if source is None or node.op_type not in ("Identity", "Transpose"):
        return None
    if node.op_type == "Transpose":
        transposed = numpy_helper.to_array(source).transpose(attributes.get("perm"))
        return numpy_helper.from_array(np.ascontiguousarray(transposed))
    constant.CopyFrom(source)
    return constant
