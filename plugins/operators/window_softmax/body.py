"""``NystraWindowSoftmax`` as a model-local ONNX function."""

from __future__ import annotations

import onnx

from ..body_builder import BodyBuilder
from ..window_body import WindowBody
from ..window_body_bias import position_bias
from .schema import SCHEMA


def body(opset: int) -> onnx.FunctionProto:
    """Return the function for a model of that opset of ONNX.

    Raises:
        NystraError: No body is written for this opset.
    """
    return BodyBuilder(SCHEMA, opset).function(write)


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    windows = WindowBody(nodes)
    q, k, v = windows.heads_apart()
    q, k = windows.set_apart(nodes.op("Mul", q, nodes.attribute("scale")), k)
    logits = nodes.op("MatMul", q, nodes.swap(k, 4))
    bias = position_bias(windows, nodes.inputs[1], windows.window_h, windows.window_w)
    weights = nodes.op("Softmax", nodes.op("Add", logits, bias), axis=-1)
    return windows.merged(nodes.op("MatMul", weights, v))
