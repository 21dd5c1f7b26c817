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
    nodes = BodyBuilder(SCHEMA, opset)
    windows = WindowBody(nodes)
    q, k, v = windows.heads_apart()
    logits = nodes.op("MatMul", nodes.op("Mul", q, nodes.attribute("scale")), nodes.swap(k, 5))
    regions = windows.token_regions()
    mask = nodes.op(
        "Where", windows.same(regions, regions), nodes.number(0.0), nodes.number(-100.0)
    )
    bias = position_bias(windows, nodes.inputs[1], windows.window_h, windows.window_w)
    added = nodes.op("Add", bias, mask)
    weights = nodes.op("Softmax", nodes.op("Add", logits, added), axis=-1)
    return nodes.finish(windows.merged(nodes.op("MatMul", weights, v)))
