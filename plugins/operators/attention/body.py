"""``NystraAttention`` as a model-local ONNX function."""

from __future__ import annotations

import math

import numpy as np

from ..body_builder import BodyBuilder


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    q, k, v, bias = map(nodes.float32, nodes.inputs)
    q = nodes.op("Mul", q, nodes.attribute("scale"))
    scores = nodes.size(q, 2), nodes.size(k, 2)
    if nodes.is_off("bias"):
        return nodes.attend(q, k, v, None, scores)
    is_on, zero = nodes.is_on("bias"), nodes.number(0.0)
    # Softmax of -inf alone is 0 / 0: it gets finite numbers, and such queries then get zeros.
    finite = nodes.op("Max", bias, nodes.number(float(np.finfo(np.float32).min)))
    out = nodes.attend(q, k, v, nodes.op("Where", is_on, finite, zero), scores)
    lowest = nodes.number(-math.inf)
    hidden = nodes.op("Equal", nodes.reduce("ReduceMax", bias, -1), lowest)
    return nodes.op("Where", nodes.op("And", is_on, hidden), zero, out)
