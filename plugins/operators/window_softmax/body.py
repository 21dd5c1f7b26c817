"""``NystraWindowSoftmax`` as a model-local ONNX function."""

from __future__ import annotations

from ..body_builder import BodyBuilder
from ..window_body import WindowBody
from ..window_body_bias import position_bias


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    windows = WindowBody(nodes)
    return attention(nodes, windows, *windows.heads_apart())


def attention(nodes: BodyBuilder, windows: WindowBody, q: str, k: str, v: str) -> str:
    """Write exact attention in windows; return the map (B, H, W, h e).

    Args:
        nodes: Where the nodes go; its second input is the bias table.
        windows: The windows.
        q: Queries (B nW, h, N, d).
        k: Keys (B nW, h, N, d).
        v: Values (B nW, h, N, e).
    """
    q = nodes.op("Mul", q, nodes.attribute("scale"))
    if not nodes.fused:  # engines take queries, keys and values of one width only
        q, k = windows.set_apart(q, k)
    window, tokens = (windows.window_h, windows.window_w), windows.tokens

    def attend(queries: str, count: str, row: str | None = None) -> str:
        bias = None
        if not nodes.is_off("bias"):
            bias = position_bias(windows, nodes.inputs[1], *window, row)
        if nodes.fused and not nodes.is_off("mask"):
            bias = windows.with_regions(bias)
        return nodes.attend(queries, k, v, bias, (count, tokens))

    if not nodes.by_rows:
        return windows.merge(attend(q, tokens))
    rows = nodes.reshape(q, -1, windows.heads, *window, nodes.size(q, 3))
    (out,) = nodes.loop(
        windows.window_h,
        [],
        lambda row, _: [attend(nodes.op("Gather", rows, row, axis=2), windows.window_w, row)],
    )
    return windows.merge(nodes.op("Transpose", out, perm=[1, 2, 0, 3, 4]))
