"""Types of tensors and operators that a low precision needs."""

from __future__ import annotations

import functools

import onnx
from onnx import TensorProto, helper

from ....plugins.domain import DOMAIN
from ....plugins.operators import find_schema

_ANY = "nystra.any"
"""A shape that is not known, of what a node of nystra gives."""


@functools.cache
def _schema(op_type: str, opset: int) -> onnx.defs.OpSchema:
    return onnx.defs.get_schema(op_type, opset)


@functools.cache
def allows_type(op_type: str, opset: int, kind: str) -> bool:
    """Whether ONNX allows an operator's first output to be of a type (``tensor(float16)``)."""
    schema = _schema(op_type, opset)
    allowed = {
        constraint.type_param_str: constraint.allowed_type_strs
        for constraint in schema.type_constraints
    }
    return kind in allowed.get(schema.outputs[0].type_str, [])


def find_data_inputs(node: onnx.NodeProto, opset: int) -> list[str]:
    """Return the inputs that are of the type of the first output: no indices, shapes, scales."""
    if node.domain == DOMAIN:
        operator = find_schema(node.op_type)
        names = zip(operator.inputs, node.input, strict=True)
        return [tensor for name, tensor in names if name not in operator.int32]
    if node.domain != "":
        return []
    schema = _schema(node.op_type, opset)
    formal = [tensor.type_str for tensor in schema.inputs]
    result_type = schema.outputs[0].type_str
    return [
        name
        for index, name in enumerate(node.input)
        if name and formal[min(index, len(formal) - 1)] == result_type
    ]


def find_float_tensors(model: onnx.ModelProto) -> set[str]:
    """Return the names of all float32 tensors of a graph, by ONNX's inference of types.

    Args:
        model: Without bodies. Results of operators that ONNX does not know are left out.
    """
    probe = onnx.ModelProto()
    make = helper.make_tensor_value_info
    probe.ir_version = model.ir_version
    probe.opset_import.extend(model.opset_import)
    probe.functions.extend(model.functions)
    graph = model.graph
    inputs = {value.name for value in model.graph.input}
    probe.graph.input.extend(graph.input)
    constants = [tensor for tensor in graph.initializer if tensor.name not in inputs]
    probe.graph.input.extend(
        make(tensor.name, tensor.data_type, tensor.dims) for tensor in constants
    )
    probe.graph.input.append(make(_ANY, TensorProto.INT64, [None]))
    for node in graph.node:
        if node.domain != DOMAIN:
            probe.graph.node.append(node)
            continue
        operator = find_schema(node.op_type)
        for name, output in zip(operator.outputs, node.output, strict=False):
            integral = name in operator.int32
            stand_in = helper.make_node("Reshape", [node.input[0], _ANY], [output])
            if integral:
                to = TensorProto.INT32
                stand_in = helper.make_node("Cast", node.input[:1], [output], to=to)
            probe.graph.node.append(stand_in)
    inferred = onnx.shape_inference.infer_shapes(probe).graph
    values = [*inferred.input, *inferred.value_info]
    return {v.name for v in values if v.type.tensor_type.elem_type == TensorProto.FLOAT}
