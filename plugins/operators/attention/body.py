"""``NystraAttention`` as a model-local ONNX function."""

from __future__ import annotations

import math

import numpy as np

from ..body_builder import BodyBuilder


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    q, k, v, bias = map(nodes.float32, nodes.inputs)
    is_on, zero = nodes.is_on("bias"), nodes.number(0.0)
    # Softmax of -inf alone is 0 / 0: it gets finite numbers, and such queries then get zeros.
    finite = nodes.op("Max", bias, nodes.number(float(np.finfo(np.float32).min)))
    logits = nodes.op("MatMul", nodes.op("Mul", q, nodes.attribute("scale")), nodes.swap(k, 4))
    logits = nodes.op("Add", logits, nodes.op("Where", is_on, finite, zero))
    out = nodes.op("MatMul", nodes.op("Softmax", logits, axis=-1), v)
    lowest = nodes.number(-math.inf)
    hidden = nodes.op("Equal", nodes.reduce("ReduceMax", bias, -1), lowest)
    return nodes.op("Where", nodes.op("And", is_on, hidden), zero, out)
