"""Inference of the shapes in a graph by ONNX."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx
import onnx_ir as ir

from ...core.arrays import Array
from .parts import Values

_SMALL = 1024
"""Tensors with at most this many elements may be sizes, which shapes are computed from."""


def infer(
    model: ir.Model,
    feeds: Mapping[str, Array],
    known: Mapping[ir.Node, Values],
    shapes: dict[str, tuple[int, ...]],
    types: dict[str, int],
) -> None:
    """Infer shapes from those of the inputs, and from the elements of small constants.

    Args:
        model: The model.
        feeds: Its inputs.
        known: Nodes that were computed before, with those of their results that are still known.
        shapes: Shapes by name, to which those that follow are added.
        types: The same for types, as ONNX numbers them.
    """
    proto = onnx.ModelProto()
    proto.ir_version = max(model.ir_version, 8)
    proto.opset_import.extend(
        onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()
    )
    proto.functions.extend(
        ir.serde.serialize_function(function) for function in model.functions.values()
    )
    proto.graph.name = "shapes"
    make = onnx.helper.make_tensor_value_info
    for value in model.graph.inputs:
        if str(value.name) in feeds:
            name, kind = str(value.name), int(value.dtype or ir.DataType.FLOAT)
            proto.graph.input.append(make(name, kind, feeds[name].shape))
            types[name] = kind
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None:
            continue
        if tensor.size <= _SMALL:
            held = ir.serde.serialize_tensor(tensor)
            held.name = str(value.name)
            proto.graph.initializer.append(held)
        else:
            proto.graph.input.append(make(str(value.name), int(tensor.dtype), tensor.shape.numpy()))
    for node in model.graph:
        if node not in known:
            proto.graph.node.append(ir.serde.serialize_node(node))
    for name, value in (item for made in known.values() for item in made.items()):
        if math.prod(value.shape()) <= _SMALL:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(value.numpy(), name))
        else:
            proto.graph.input.append(make(name, value.element_type(), value.shape()))
    proto.graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in model.graph.outputs)
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # the graph is run then, which reports what is wrong
        return
    for info in [*inferred.graph.value_info, *inferred.graph.output]:
        tensor_type = info.type.tensor_type
        if not info.type.HasField("tensor_type") or not tensor_type.HasField("shape"):
            continue
        sides = [
            side.dim_value if side.HasField("dim_value") else -1 for side in tensor_type.shape.dim
        ]
        if min(sides, default=0) >= 0:
            shapes[info.name] = tuple(sides)
            types[info.name] = tensor_type.elem_type
