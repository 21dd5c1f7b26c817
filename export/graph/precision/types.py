"""Types of tensors and operators that a low precision needs."""

from __future__ import annotations

import functools

import onnx
from onnx import TensorProto

from ....plugins.domain import DOMAIN
from ....plugins.operators import find_schema
from .table import INTEGER_RESULTS, TRUTH_RESULTS


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of the standard operators."""
    version: int = next(opset.version for opset in model.opset_import if opset.domain == "")
    return version


@functools.cache
def _schema(op_type: str, opset: int) -> onnx.defs.OpSchema:
    return onnx.defs.get_schema(op_type, opset)


@functools.cache
def takes(op_type: str, opset: int, kind: str) -> bool:
    """Whether ONNX allows an operator's first output to be of a type (``tensor(float16)``)."""
    schema = _schema(op_type, opset)
    allowed = {
        constraint.type_param_str: constraint.allowed_type_strs
        for constraint in schema.type_constraints
    }
    return kind in allowed.get(schema.outputs[0].type_str, [])


def data_inputs(node: onnx.NodeProto, opset: int) -> list[str]:
    """Return the inputs that are of the type of the first output: no indices, shapes, scales."""
    if node.domain == DOMAIN:
        operator = find_schema(node.op_type)
        names = zip(operator.inputs, node.input, strict=True)
        return [tensor for name, tensor in names if name not in operator.int32]
    if node.domain != "":
        return []
    schema = _schema(node.op_type, opset)
    formal = [tensor.type_str for tensor in schema.inputs]
    wanted = schema.outputs[0].type_str
    return [
        name
        for place, name in enumerate(node.input)
        if name and formal[min(place, len(formal) - 1)] == wanted
    ]


def float_tensors(graph: onnx.GraphProto) -> set[str]:
    """Return the names of all float32 tensors of a graph whose nodes are float32 or no floats."""
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    kinds |= {value.name: value.type.tensor_type.elem_type for value in graph.input}
    for node in graph.node:
        for name, kind in zip(node.output, _results(node, kinds), strict=True):
            kinds[name] = kind
    return {name for name, kind in kinds.items() if kind == TensorProto.FLOAT}


def _results(node: onnx.NodeProto, kinds: dict[str, int]) -> list[int]:
    """Return the element type of each output of a node."""
    count = len(node.output)
    attributes = {attribute.name: attribute for attribute in node.attribute}
    first = kinds.get(node.input[0], TensorProto.FLOAT) if node.input else TensorProto.FLOAT
    if node.domain == DOMAIN:
        operator = find_schema(node.op_type)
        integer = TensorProto.INT32
        return [integer if name in operator.int32 else first for name in operator.outputs[:count]]
    if node.op_type == "Cast":
        return [attributes["to"].i]
    if node.op_type in INTEGER_RESULTS:
        return [TensorProto.INT64] * count
    if node.op_type in TRUTH_RESULTS:
        return [TensorProto.BOOL] * count
    if node.op_type in ("Constant", "ConstantOfShape"):
        value = attributes.get("value")
        if value is not None:
            return [value.t.data_type]
        # A ConstantOfShape without a value is float32, whatever its input, the shape, is.
        return [
            TensorProto.INT64 if any("int" in name for name in attributes) else TensorProto.FLOAT
        ]
    if node.op_type in ("CastLike", "Where"):
        return [kinds.get(node.input[1], TensorProto.FLOAT)]
    if node.op_type == "TopK":
        return [first, TensorProto.INT64][:count]
    return [first] * count
