"""The relative position bias of windows as ONNX nodes."""

from __future__ import annotations

from .body_builder import BodyBuilder
from .window_body import WindowBody


def position_bias(
    windows: WindowBody, table: str, key_h: str, key_w: str, row: str | None = None
) -> str:
    """Return the position bias (h, N, Nk), or zeros that broadcast to it where ``bias`` is 0.

    Args:
        windows: Windows of the queries.
        table: ((wh+kh-1)(ww+kw-1), h).
        key_h: Rows of a window of keys, kh.
        key_w: Columns of it, kw.
        row: Only the queries of this row of a window, an int64 scalar: (h, ww, Nk).
    """
    body = windows.body
    if body.is_off("bias"):
        return body.number(0.0)
    if body.stepped:
        return _in_steps(windows, table, key_h, key_w)
    bias = body.attribute("bias")

    def if_bias(size: str) -> str:
        less = body.op("Sub", size, body.ints(1))
        return body.op("Add", body.op("Mul", less, bias), body.ints(1))

    tokens, keys = if_bias(windows.tokens), if_bias(body.op("Mul", key_h, key_w))
    queries = body.count(tokens if row is None else windows.window_w)
    if row is not None:
        queries = body.op("Add", body.op("Mul", row, windows.window_w), queries)

    def offsets(size: str, which: str) -> str:
        """Return row or column of query minus that of key, shifted to be non-negative, (N, Nk)."""
        query = body.op(which, queries, windows.window_w)
        key = body.op(which, body.count(keys), key_w)
        distance = body.op("Sub", body.reshape(query, -1, 1), body.reshape(key, 1, -1))
        return body.op("Add", distance, body.op("Sub", size, body.ints(1)))

    def span(size: str, key_size: str) -> str:
        return body.op("Sub", body.op("Add", size, key_size), body.ints(1))

    rows = offsets(key_h, "Div")
    cols = offsets(key_w, "Mod")
    across = span(windows.window_w, key_w)
    index = body.op("Add", body.op("Mul", rows, across), cols)
    entries = if_bias(body.op("Mul", span(windows.window_h, key_h), across))
    heads = if_bias(windows.heads)
    count = body.shape(body.op("Mul", entries, heads))
    read = body.op("Slice", body.reshape(body.float32(table), -1), body.ints([0]), count)
    by_head = body.op("Transpose", body.reshape(read, entries, heads), perm=[1, 0])
    entry = body.op("Gather", by_head, body.op("Mul", index, bias), axis=1)
    return body.op("Where", body.is_on("bias"), entry, body.number(0.0))


def _in_steps(windows: WindowBody, table: str, key_h: str, key_w: str) -> str:
    """Return `position_bias` by slices and reshapes of at most four axes."""
    body = windows.body
    key_rows, key_cols = body.read_size(key_h), body.read_size(key_w)
    rows, cols = body.read_size(windows.window_h), body.read_size(windows.window_w)
    length = (rows + key_rows - 1) * (cols + key_cols - 1)
    backwards = body.ints(list(range(length))[::-1])
    by_head = body.op("Transpose", body.op("Gather", body.float32(table), backwards), perm=[1, 0])
    lines = body.reshape(by_head, windows.heads, rows + key_rows - 1, -1)
    lines = _differences(body, lines, rows, key_rows)  # (h, wh, kh, ww + kw - 1)
    pairs = _differences(body, body.reshape(lines, -1, cols + key_cols - 1, 1), cols, key_cols)
    pairs = body.reshape(pairs, -1, key_rows, cols, key_cols)
    pairs = body.op("Transpose", pairs, perm=[0, 2, 1, 3])
    return body.reshape(pairs, windows.heads, rows * cols, key_rows * key_cols)


def _differences(body: BodyBuilder, lines: str, queries: int, keys: int) -> str:
    """Return for each query i and key j the line of i - j, (A, queries, keys, C).

    Copies of the lines are reshaped to rows that are shorter by one: so each row begins one line
    earlier than the one before.

    Lines are (A, queries + keys - 1, C), from the largest difference down.
    """
    length = queries + keys - 1
    if queries == 1:
        return body.op("Unsqueeze", lines, body.ints([1]))
    channels = body.size(lines, 2)
    copies = body.reshape(lines, -1, 1, body.op("Mul", body.ints(length), channels))
    copies = body.op("Expand", copies, body.ints([1, queries, 1]))
    flat = body.reshape(copies, -1, queries * length, channels)
    begin, end = queries - 1, queries - 1 + queries * (length - 1)
    flat = body.op("Slice", flat, body.ints([begin]), body.ints([end]), body.ints([1]))
    pieces = body.reshape(flat, -1, queries, length - 1, channels)
    return body.op("Slice", pieces, body.ints([0]), body.ints([keys]), body.ints([2]))
