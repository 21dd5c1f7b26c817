"""``NystraWindowOverlap`` as a model-local ONNX function."""

from __future__ import annotations

from ..body_builder import BodyBuilder
from ..window_body import WindowBody
from ..window_body_bias import position_bias
from ..window_moves import SteppedMoves


class _KeyWindows:
    def __init__(self, windows: WindowBody) -> None:
        body = windows.body
        self.windows = windows
        self.margins = [body.attribute("margin_h"), body.attribute("margin_w")]
        twice = [body.op("Add", margin, margin) for margin in self.margins]
        self.height, self.width = (
            body.op("Add", size, more)
            for size, more in zip((windows.height, windows.width), twice, strict=True)
        )
        self.rows, self.cols = (
            body.op("Add", size, more)
            for size, more in zip((windows.window_h, windows.window_w), twice, strict=True)
        )
        self.keys = body.op("Mul", self.rows, self.cols)

    def split(self, which: int) -> str:
        """Return k (1) or v (2), (B nW, h, Nk, size)."""
        windows, body = self.windows, self.windows.body
        channels, size = windows.channels(which, windows.map), windows.sizes[which]
        if body.stepped:
            return self._in_steps(channels, size)
        padded = body.op("Pad", channels, self._pads(*self.margins))
        places = body.op("Mul", body.op("Mul", self.height, self.width), windows.heads)
        rows = body.reshape(padded, windows.batch, places, size)
        tokens = body.op("Gather", rows, self._index(), axis=1)
        return body.reshape(tokens, -1, windows.heads, self.keys, size)

    def _pads(self, below: str, right: str) -> str:
        body, nothing = self.windows.body, self.windows.body.ints(0)
        return body.shape(nothing, *self.margins, nothing, nothing, below, right, nothing)

    def _index(self) -> str:
        """Return the place (y, x, head) in the padded map of each (row, col, head, key)."""
        windows, body = self.windows, self.windows.body

        def along(count: str, window: str, keys: str) -> str:
            starts = body.op("Mul", body.count(count), window)
            return body.op(
                "Add", body.reshape(starts, -1, 1), body.reshape(body.count(keys), 1, -1)
            )

        ys = along(windows.rows, windows.window_h, self.rows)
        xs = along(windows.cols, windows.window_w, self.cols)
        stride = body.op("Mul", self.width, windows.heads)
        by_row = body.reshape(body.op("Mul", ys, stride), windows.rows, 1, 1, self.rows, 1)
        by_col = body.reshape(body.op("Mul", xs, windows.heads), 1, windows.cols, 1, 1, self.cols)
        by_head = body.reshape(body.count(windows.heads), 1, 1, -1, 1, 1)
        index = body.op("Add", body.op("Add", by_col, by_head), by_row)
        return body.reshape(index, -1)

    def _in_steps(self, channels: str, size: str) -> str:
        """Return `split` by slices, reshapes and transposes of at most four axes."""
        windows, body = self.windows, self.windows.body
        total = body.size(channels, 3)
        fills = (
            body.op("Add", margin, self._pad_to(keys, window))
            for margin, keys, window in (
                (self.margins[0], self.rows, windows.window_h),
                (self.margins[1], self.cols, windows.window_w),
            )
        )
        padded = body.op("Pad", channels, self._pads(*fills))
        width = body.size(padded, 2)
        lines = body.reshape(padded, windows.batch, body.size(padded, 1), -1)
        lines = self._cut_overlaps(lines, windows.rows, windows.window_h, self.rows)
        lines = body.reshape(lines, -1, self.rows, width, total)
        columns = body.reshape(
            body.op("Transpose", lines, perm=[0, 2, 1, 3]),
            body.op("Mul", windows.batch, windows.rows),
            width,
            -1,
        )
        columns = self._cut_overlaps(columns, windows.cols, windows.window_w, self.cols)
        columns = body.reshape(columns, -1, self.cols, self.rows, total)
        keys = body.op("Transpose", columns, perm=[0, 2, 1, 3])
        return SteppedMoves(windows).heads(
            body.reshape(keys, -1, self.keys, total), self.keys, size
        )

    def _pad_to(self, length: str, step: str) -> str:
        body = self.windows.body
        return body.op("Mod", body.op("Sub", step, body.op("Mod", length, step)), step)

    def _cut_overlaps(self, lines: str, count: str, step: str, length: str) -> str:
        """Return (A count, length, C): parts that begin one step after each other.

        Args:
            lines: (A, L, C), long enough for ``count`` whole steps after the start of the last
                part.
            count: Number of parts.
            step: Distance between the starts of parts.
            length: Length of each.
        """
        body = self.windows.body
        channels, axis = body.size(lines, 2), body.ints([1])
        parts = []
        for begin in range(0, body.read_size(length), body.read_size(step)):
            end = body.op("Add", body.ints(begin), body.op("Mul", count, step))
            part = body.op("Slice", lines, body.ints([begin]), body.shape(end), axis)
            parts.append(body.reshape(part, -1, step, channels))
        joined = body.op("Concat", *parts, axis=1)
        return body.op("Slice", joined, body.ints([0]), body.shape(length), axis)


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    windows = WindowBody(nodes)
    key_windows = _KeyWindows(windows)
    q, k, v = windows.split(0), key_windows.split(1), key_windows.split(2)
    bias = None
    if not nodes.is_off("bias"):
        bias = position_bias(windows, nodes.inputs[1], key_windows.rows, key_windows.cols)
    q = nodes.op("Mul", q, nodes.attribute("scale"))
    return windows.merge(nodes.attend(q, k, v, bias, (windows.tokens, key_windows.keys)))
