"""A float32 model that rounds where a low-precision model does.

onnxruntime's CPU has no bfloat16 arithmetic. For float16 it computes many operators in float32 and
drops the casts between them, so that a value that overflows on a GPU may go unnoticed there. In the
copy every tensor of the low type is rounded to it, to infinity beyond its largest number, and the
arithmetic between is float32.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ...execute.editing import NodeWriter
from .constants import read_low_copy
from .table import LOW_TYPES, moves


def make_rounded_copy(
    model: onnx.ModelProto,
    precision: str,
    tensors: set[str],
) -> onnx.ModelProto:
    """Return the rounded float32 copy of a model.

    Args:
        model: From `cast.lower`, without bodies; left as it is.
        precision: ``fp16`` or ``bf16``.
        tensors: Those of the low type, as `cast.lower` returned them.
    """
    low = LOW_TYPES[precision]
    copied: onnx.ModelProto = onnx.ModelProto.FromString(model.SerializeToString())
    graph = copied.graph
    writer = NodeWriter(graph)
    for tensor in graph.initializer:
        if tensor.data_type == low.element:
            values = read_low_copy(tensor, low).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for node in graph.node:
        if node.op_type == "Cast" and node.domain == "":
            kind = next(attribute for attribute in node.attribute if attribute.name == "to")
            if kind.i == low.element:
                kind.i = TensorProto.FLOAT
        rounds = [name for name in node.output if name in tensors and not moves(node)]
        for index, name in enumerate(node.output):
            if name in rounds:
                node.output[index] = f"{name}.exact"
        writer.nodes.append(node)
        for name in rounds:
            narrow = writer.op("Cast", [f"{name}.exact"], f"{name}.narrow", to=low.element)
            writer.op("Cast", [narrow], name, to=TensorProto.FLOAT)
    writer.replace_all()
    return copied
