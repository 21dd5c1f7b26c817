"""``NystraWindowNystromformer`` as a model-local ONNX function."""

from __future__ import annotations

from ..body_builder import BodyBuilder
from ..landmark_body import LandmarkBody


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    windows = LandmarkBody(nodes)
    q, k, v = windows.heads_apart()

    def weights(logits: str, same: str) -> str:
        mask = nodes.op("Where", same, nodes.number(0.0), nodes.number(-100.0))
        return nodes.op("Softmax", nodes.op("Add", logits, mask), axis=-1)

    left_logits, core_logits, upper_logits = windows.logits(q, k)
    left = weights(left_logits, windows.left_same)
    core = weights(core_logits, windows.core_same)
    upper = weights(upper_logits, windows.upper_same)
    z = windows.inverse(core)
    values = nodes.op("MatMul", z, nodes.op("MatMul", upper, v))
    return windows.merge(nodes.op("MatMul", left, values))
