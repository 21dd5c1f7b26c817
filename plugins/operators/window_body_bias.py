"""The relative position bias of windows as ONNX nodes."""

from __future__ import annotations

from .window_body import WindowBody


def position_bias(windows: WindowBody, table: str, key_h: str, key_w: str) -> str:
    """Return the position bias (h, N, Nk), or one 0 (1, 1, 1) where ``bias`` is 0.

    Args:
        windows: Of the queries.
        table: ((wh+kh-1)(ww+kw-1), h).
        key_h: Rows of a window of keys, kh.
        key_w: Columns of it, kw.
    """
    body = windows.body
    bias = body.attribute("bias")
    keys = body.op("Mul", key_h, key_w)

    def offsets(size: str, which: str) -> str:
        """Return row or column of query minus that of key, shifted to be non-negative, (N, Nk)."""
        query = body.op(which, body.count(windows.tokens), windows.window_w)
        key = body.op(which, body.count(keys), key_w)
        distance = body.op("Sub", body.reshape(query, -1, 1), body.reshape(key, 1, -1))
        return body.op("Add", distance, body.op("Sub", size, body.ints(1)))

    def span(size: str, key_size: str) -> str:
        return body.op("Sub", body.op("Add", size, key_size), body.ints(1))

    def if_bias(size: str) -> str:
        less = body.op("Sub", size, body.ints(1))
        return body.op("Add", body.op("Mul", less, bias), body.ints(1))

    rows = offsets(key_h, "Div")
    cols = offsets(key_w, "Mod")
    across = span(windows.window_w, key_w)
    index = body.op("Add", body.op("Mul", rows, across), cols)
    ends = body.shape(if_bias(windows.tokens), if_bias(keys))
    index = body.op("Slice", index, body.ints([0, 0]), ends, body.ints([0, 1]))
    entries = if_bias(body.op("Mul", span(windows.window_h, key_h), across))
    heads = if_bias(windows.heads)
    count = body.shape(body.op("Mul", entries, heads))
    read = body.op("Slice", body.reshape(body.float32(table), -1), body.ints([0]), count)
    by_head = body.op("Transpose", body.reshape(read, entries, heads), perm=[1, 0])
    taken = body.op("Gather", by_head, body.op("Mul", index, bias), axis=1)
    return body.op("Where", body.is_on("bias"), taken, body.number(0.0))
