"""``NystraWindowSoftmax`` as a model-local ONNX function."""

from __future__ import annotations

from ..body_builder import BodyBuilder
from ..window_body import WindowBody
from ..window_body_bias import position_bias


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    windows = WindowBody(nodes)
    q, k, v = windows.heads_apart()
    q, k = windows.set_apart(nodes.op("Mul", q, nodes.attribute("scale")), k)
    keys, window = nodes.swap(k, 4), (windows.window_h, windows.window_w)

    def attended(queries: str, row: str | None = None) -> str:
        logits = nodes.op("MatMul", queries, keys)
        bias = position_bias(windows, nodes.inputs[1], *window, row)
        weights = nodes.op("Softmax", nodes.op("Add", logits, bias), axis=-1)
        return nodes.op("MatMul", weights, v)

    if not nodes.by_rows:
        return windows.merged(attended(q))
    rows = nodes.reshape(q, -1, windows.heads, *window, nodes.size(q, 3))
    (out,) = nodes.loop(
        windows.window_h, [], lambda row, _: [attended(nodes.op("Gather", rows, row, axis=2), row)]
    )
    return windows.merged(nodes.op("Transpose", out, perm=[1, 2, 0, 3, 4]))
