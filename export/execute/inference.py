"""Inference of the shapes in a graph by ONNX."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import onnx
import onnx_ir as ir

from ...core.arrays import Array
from ...core.ports.port import Shape
from ...runtime.ort_values import copy_from_ort
from .names import find_result_names, list_names
from .parts import Values, find_reads

_SMALL = 1024
"""Tensors with at most this many elements may be sizes, which shapes are computed from."""


def infer(
    model: ir.Model,
    feeds: Mapping[str, Array],
    computed: Mapping[ir.Node, Values],
    shapes: dict[str, Shape],
    types: dict[str, int],
    data: Collection[str],
) -> None:
    """Infer shapes from those of the inputs, and from the elements of small constants.

    Nodes with pixels are left out once the shapes of their results are known: no element of these
    is a size.

    Args:
        model: The model.
        feeds: Its inputs.
        computed: Nodes that were computed before, with those of their results that are still known.
        shapes: Shapes by name, to which those that follow are added.
        types: The same for types, as ONNX numbers them.
        data: Names of the values that depend on pixels.
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
            name = str(value.name)
            kind = int(value.dtype or ir.DataType.FLOAT)
            array = feeds[name]
            proto.graph.input.append(make(name, kind, array.shape))
            types[name] = kind
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None:
            continue
        if tensor.size <= _SMALL:
            initializer = ir.serde.serialize_tensor(tensor)
            initializer.name = str(value.name)
            proto.graph.initializer.append(initializer)
        else:
            shape = tensor.shape.numpy()
            kind = int(tensor.dtype)
            proto.graph.input.append(make(str(value.name), kind, shape))
    nodes = [
        node
        for node in model.graph
        if node not in computed and not _is_told(node, shapes, types, data)
    ]
    results_of_nodes = find_result_names(nodes)
    for name in {
        str(value.name) for node in nodes for value in find_reads(node)
    } - results_of_nodes:
        if name in data and name in shapes and name not in feeds:
            info = make(name, types[name], shapes[name])
            proto.graph.input.append(info)
    proto.graph.node.extend(map(ir.serde.serialize_node, nodes))
    every_result = [item for results in computed.values() for item in results.items()]
    for name, result in every_result:
        if math.prod(result.shape()) <= _SMALL:
            tensor = onnx.numpy_helper.from_array(copy_from_ort(result), name)
            proto.graph.initializer.append(tensor)
        else:
            kind = result.element_type()
            proto.graph.input.append(make(name, kind, result.shape()))
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=value.name)
        for value in model.graph.outputs
        if str(value.name) in results_of_nodes
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # noqa: BLE001 - the graph is run then, which reports what is wrong
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


def _is_told(
    node: ir.Node,
    shapes: Mapping[str, Shape],
    types: Mapping[str, int],
    data: Collection[str],
) -> bool:
    """Return whether all results of a node depend on pixels and have known shapes and types."""
    names = list_names(node.outputs)
    return all(name in data and name in shapes and name in types for name in names)
