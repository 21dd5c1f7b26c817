"""``NystraWindowCosine`` as a model-local ONNX function."""

from __future__ import annotations

from ..body_builder import BodyBuilder
from ..window_body import WindowBody
from ..window_softmax.body import attention


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    windows = WindowBody(nodes)
    q, k, v = windows.heads_apart()
    q, k = (_unit(nodes, tokens) for tokens in (q, k))
    factors = nodes.reshape(nodes.float32(nodes.inputs[2]), windows.heads, 1, 1)
    return attention(nodes, windows, nodes.op("Mul", q, factors), k, v)


def _unit(nodes: BodyBuilder, tokens: str) -> str:
    norms = nodes.reduce("ReduceL2", tokens, -1)
    return nodes.op("Div", tokens, nodes.op("Max", norms, nodes.attribute("epsilon")))
