"""Converts a map to windows of heads and back, as ONNX nodes: by one Gather, or in steps.

Tensors of windows are (B nW, h, N, c), the windows of an image row by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .window_body import WindowBody


class GatheredMoves:
    """One Gather each way, which shifts, partitions and splits heads, for unknown sizes."""

    def __init__(self, windows: WindowBody) -> None:
        self._windows, self._body = windows, windows.body
        area = self._body.op("Mul", windows.height, windows.width)
        self._places = self._body.op("Mul", area, windows.heads)

    def split(self, which: int) -> str:
        """Return the windows (B nW, h, N, size) of q (0), k (1) or v (2)."""
        body, windows = self._body, self._windows
        size = windows.sizes[which]
        rows = body.reshape(windows.channels(which, windows.map), windows.batch, self._places, size)
        tokens = body.op("Gather", rows, self._partition_index(), axis=1)
        return body.reshape(tokens, -1, windows.heads, windows.tokens, size)

    def merge(self, out: str) -> str:
        """Return the map (B, H, W, h e) of windows (B nW, h, N, e)."""
        body, windows = self._body, self._windows
        size = windows.value_dim
        rows = body.reshape(out, windows.batch, self._places, size)
        pixels = body.op("Gather", rows, self._merge_index(), axis=1)
        channels = body.op("Mul", windows.heads, size)
        return body.reshape(pixels, windows.batch, windows.height, windows.width, channels)

    def _partition_index(self) -> str:
        """Return the place (y, x, head) in the map of each (row, col, head, token) of windows."""
        body, windows = self._body, self._windows
        ys = body.op(
            "Mod", body.op("Add", body.count(windows.height), windows.shift_h), windows.height
        )
        xs = body.op(
            "Mod", body.op("Add", body.count(windows.width), windows.shift_w), windows.width
        )
        stride = body.op("Mul", windows.width, windows.heads)
        by_row = body.reshape(body.op("Mul", ys, stride), windows.rows, 1, 1, windows.window_h, 1)
        by_col = body.op("Mul", xs, windows.heads)
        by_col = body.reshape(by_col, 1, windows.cols, 1, 1, windows.window_w)
        by_head = body.reshape(body.count(windows.heads), 1, 1, -1, 1, 1)
        index = body.op("Add", body.op("Add", by_col, by_head), by_row)
        return body.reshape(index, -1)

    def _merge_index(self) -> str:
        """Return the place (row, col, head, token) in windows of each (y, x, head) of the map."""
        body, windows = self._body, self._windows
        per_window = body.op("Mul", windows.heads, windows.tokens)
        row_stride = body.op("Mul", windows.cols, per_window)

        def along(size: str, shift: str, window: str, window_stride: str, stride: str) -> str:
            back = body.op("Sub", body.op("Add", body.count(size), size), shift)
            rolled = body.op("Mod", back, size)
            at = body.op("Mul", body.op("Div", rolled, window), window_stride)
            return body.op("Add", at, body.op("Mul", body.op("Mod", rolled, window), stride))

        ys = along(windows.height, windows.shift_h, windows.window_h, row_stride, windows.window_w)
        xs = along(windows.width, windows.shift_w, windows.window_w, per_window, body.ints(1))
        heads = body.op("Mul", body.count(windows.heads), windows.tokens)
        by_col = body.op("Add", body.reshape(xs, 1, -1, 1), body.reshape(heads, 1, 1, -1))
        return body.reshape(body.op("Add", body.reshape(ys, -1, 1, 1), by_col), -1)


class SteppedMoves:
    """Slices, reshapes and transposes of at most four axes."""

    def __init__(self, windows: WindowBody) -> None:
        self._windows, self._body = windows, windows.body

    def split(self, which: int) -> str:
        """Return the windows (B nW, h, N, size) of q (0), k (1) or v (2)."""
        windows = self._windows
        tokens = self._partition(self._roll(windows.map, windows.shift_h, windows.shift_w))
        return self.heads(windows.channels(which, tokens), windows.tokens, windows.sizes[which])

    def heads(self, tokens: str, count: str, size: str) -> str:
        """Return the windows (B nW, h, count, size) of tokens that lie (B nW, count, h size)."""
        body = self._body
        pieces = body.reshape(tokens, -1, count, self._windows.heads, size)
        return body.op("Transpose", pieces, perm=[0, 2, 1, 3])

    def merge(self, out: str) -> str:
        """Return the map (B, H, W, h e) of windows (B nW, h, N, e)."""
        body, windows = self._body, self._windows
        channels = body.op("Mul", windows.heads, windows.value_dim)
        across = body.op("Mul", windows.window_w, channels)
        tokens = body.op("Transpose", out, perm=[0, 2, 1, 3])
        pieces = body.reshape(tokens, -1, windows.cols, windows.window_h, across)
        lines = body.op("Transpose", pieces, perm=[0, 2, 1, 3])
        grid = body.reshape(lines, windows.batch, windows.height, windows.width, channels)
        back = (
            body.op("Sub", size, shift)
            for size, shift in ((windows.height, windows.shift_h), (windows.width, windows.shift_w))
        )
        return self._roll(grid, *back)

    def _partition(self, rolled: str) -> str:
        """Return the tokens (B nW, N, C) of a map (B, H, W, C)."""
        body, windows = self._body, self._windows
        channels = body.size(rolled, 3)
        across = body.op("Mul", windows.window_w, channels)
        pieces = body.reshape(rolled, -1, windows.window_h, windows.cols, across)
        together = body.op("Transpose", pieces, perm=[0, 2, 1, 3])
        return body.reshape(together, -1, windows.tokens, channels)

    def _roll(self, channels: str, down: str, across: str) -> str:
        """Return the map (B, H, W, .) rolled up by ``down`` rows and left by ``across`` columns."""
        body = self._body
        for axis, by in ((1, down), (2, across)):
            begin, end = body.shape(by), body.ints([2**31 - 1])
            parts = (
                body.op("Slice", channels, first, last, body.ints([axis]))
                for first, last in ((begin, end), (body.ints([0]), begin))
            )
            channels = body.op("Concat", *parts, axis=axis)
        return channels
