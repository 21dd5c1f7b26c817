"""``NystraAttention`` as a model-local ONNX function."""

from __future__ import annotations

import math

from ..body_builder import BodyBuilder


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    q, k, v, bias = map(nodes.float32, nodes.inputs)
    q = nodes.op("Mul", q, nodes.attribute("scale"))
    scores = nodes.size(q, 2), nodes.size(k, 2)
    if nodes.is_off("bias"):
        return nodes.attend(q, k, v, None, scores)
    is_on, zero = nodes.is_on("bias"), nodes.number(0.0)
    # Softmax of -inf alone is 0 / 0: such queries get another bias, and then zeros.
    lowest = nodes.number(-math.inf)
    no_key = nodes.op("Equal", nodes.reduce("ReduceMax", bias, -1), lowest)
    hidden = nodes.op("And", is_on, no_key)
    used = nodes.op("Where", nodes.op("Or", no_key, nodes.op("Not", is_on)), zero, bias)
    return nodes.op("Where", hidden, zero, nodes.attend(q, k, v, used, scores))
