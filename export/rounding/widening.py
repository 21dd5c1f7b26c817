"""A graph of half precision in float32: what tells how much its rounding changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, numpy_helper

from ..execute.parts import find_reads, is_stored, nodes_of, serialize_constant, subgraphs

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPES = ("to", "dtype", "output_dtype", "stash_type")
"""Attributes that name a type."""


def has_half(model: onnx.ModelProto) -> bool:
    """Return whether a model has values of half precision."""
    graph = model.graph
    values = [*graph.input, *graph.output]
    declared = [value.type.tensor_type.elem_type for value in values]
    return any(kind in _HALF for kind in declared) or any(
        tensor.data_type in _HALF for tensor in _tensors(graph)
    )


def widen(model: onnx.ModelProto, nodes: Sequence[ir.Node]) -> ir.Model:
    """Return a model of these nodes in float32 wherever it has half precision.

    Args:
        model: The model, which is not modified.
        nodes: Its nodes, or others that read its values.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    initializers = {tensor.name for tensor in graph.initializer}
    for node in nodes:
        for value in find_reads(node):
            if is_stored(value) and value.name not in initializers:
                graph.initializer.append(serialize_constant(value))
                initializers.add(str(value.name))
    del graph.node[:], graph.value_info[:]
    graph.node.extend(ir.serde.serialize_node(node) for node in nodes)
    for tensor in _tensors(graph):
        if tensor.data_type in _HALF:
            array = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for inner in _graphs(graph):
        for value in [*inner.input, *inner.output, *inner.value_info]:
            if value.type.tensor_type.elem_type in _HALF:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        for node in inner.node:
            for attribute in node.attribute:
                if attribute.name in _TYPES and attribute.i in _HALF:
                    attribute.i = TensorProto.FLOAT
    result: ir.Model = ir.from_proto(copy)
    return result


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in nodes_of(graph):
        yield from subgraphs(node)


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    for inner in _graphs(graph):
        yield from inner.initializer
        for node in inner.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
