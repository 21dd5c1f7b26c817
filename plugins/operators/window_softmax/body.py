"""``NystraWindowSoftmax`` as a model-local ONNX function."""

from __future__ import annotations

import onnx

from ..body_builder import BodyBuilder
from ..window_body import WindowBody
from .schema import SCHEMA


def _bias(windows: WindowBody, table: str) -> str:
    """Return the position bias (h, N, N), or one 0 (1, 1, 1) where ``bias`` is 0."""
    body = windows.body
    bias = body.attribute("bias")

    def offsets(size: str, which: str) -> str:
        """Return row or column of query minus that of key, made non-negative, (N, N)."""
        token = body.count(windows.tokens)
        place = body.op(which, token, windows.window_w)
        apart = body.op("Sub", body.reshape(place, -1, 1), body.reshape(place, 1, -1))
        return body.op("Add", apart, body.op("Sub", size, body.ints(1)))

    def span(size: str) -> str:
        return body.op("Sub", body.op("Add", size, size), body.ints(1))

    def if_bias(size: str) -> str:
        less = body.op("Sub", size, body.ints(1))
        return body.op("Add", body.op("Mul", less, bias), body.ints(1))

    rows = offsets(windows.window_h, "Div")
    cols = offsets(windows.window_w, "Mod")
    across = span(windows.window_w)
    index = body.op("Add", body.op("Mul", rows, across), cols)
    n = if_bias(windows.tokens)
    ends = body.shape(n, n)
    index = body.op("Slice", index, body.ints([0, 0]), ends, body.ints([0, 1]))
    entries = if_bias(body.op("Mul", span(windows.window_h), across))
    heads = if_bias(windows.heads)
    count = body.shape(body.op("Mul", entries, heads))
    read = body.op("Slice", body.reshape(body.float32(table), -1), body.ints([0]), count)
    by_head = body.op("Transpose", body.reshape(read, entries, heads), perm=[1, 0])
    taken = body.op("Gather", by_head, body.op("Mul", index, bias), axis=1)
    return body.op("Where", body.is_on("bias"), taken, body.number(0.0))


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
    added = nodes.op("Add", _bias(windows, nodes.inputs[1]), mask)
    weights = nodes.op("Softmax", nodes.op("Add", logits, added), axis=-1)
    return nodes.finish(windows.merged(nodes.op("MatMul", weights, v)))
