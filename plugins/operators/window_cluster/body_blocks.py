"""The blocks of a window as ONNX nodes; the last of a side may be smaller, and is filled up."""

from __future__ import annotations

from ..window_body import WindowBody


class Blocks:
    """How the tokens of a window lie in blocks.

    Attributes:
        rows: Of a block, and so on for the other sizes, all int64 scalars.
        places: Of a block: rows times columns.
        count: Blocks of a window.
        coarse: In which block of the coarse bias each block is, (blocks).
    """

    def __init__(self, windows: WindowBody) -> None:
        """Read the side off the attributes; a block is no larger than the window."""
        self._windows = windows
        body = self._body = windows.body
        side, coarse = body.attribute("block"), body.attribute("bias_block")
        self.rows = body.op("Min", side, windows.window_h)
        self.cols = body.op("Min", side, windows.window_w)
        self.places = body.op("Mul", self.rows, self.cols)
        down, across = (
            self._over(windows.window_h, self.rows),
            self._over(windows.window_w, self.cols),
        )
        self.count = body.op("Mul", down, across)
        self._down, self._across = down, across

        first_row = body.op("Div", body.op("Mul", body.count(down), self.rows), coarse)
        first_col = body.op("Div", body.op("Mul", body.count(across), self.cols), coarse)
        wide = self._over(windows.window_w, coarse)
        first_row = body.reshape(body.op("Mul", first_row, wide), -1, 1)
        self.coarse = body.reshape(body.op("Add", first_row, body.reshape(first_col, 1, -1)), -1)

        ys = body.reshape(body.count(body.op("Mul", down, self.rows)), down, 1, self.rows, 1)
        xs = body.reshape(body.count(body.op("Mul", across, self.cols)), 1, across, 1, self.cols)
        last_y, last_x = (
            body.op("Sub", size, body.ints(1)) for size in (windows.window_h, windows.window_w)
        )
        row = body.op("Mul", body.op("Min", ys, last_y), windows.window_w)
        self._tokens = body.reshape(body.op("Add", row, body.op("Min", xs, last_x)), -1)
        real = body.op(
            "And", body.op("LessOrEqual", ys, last_y), body.op("LessOrEqual", xs, last_x)
        )
        self._real = body.float32(real)

    def _over(self, size: str, side: str) -> str:
        """Return how many blocks of that side cover the size."""
        body = self._body
        return body.op("Div", body.op("Add", size, body.op("Sub", side, body.ints(1))), side)

    def real(self, *shape: int) -> str:
        """Return 1 where a place is a token and 0 where it is filling, (blocks, *shape)."""
        return self._body.reshape(self._real, self.count, *shape)

    def cut(self, tokens: str, channels: str | int) -> str:
        """Return (B, nW, h, blocks, places, c) of tokens (B, nW, h, N, c)."""
        windows, body = self._windows, self._body
        taken = body.op("Gather", tokens, self._tokens, axis=3)
        leading = (windows.batch, windows.windows, windows.heads)
        return body.reshape(taken, *leading, self.count, self.places, channels)

    def whole(self, blocks: str) -> str:
        """Return (B, nW, h, N, e) of (B, nW, h, blocks, places, e)."""
        windows, body = self._windows, self._body
        y, x = body.count(windows.window_h), body.count(windows.window_w)

        def along(place: str, side: str, block_step: str, step: str) -> str:
            block = body.op("Mul", body.op("Div", place, side), block_step)
            return body.op("Add", block, body.op("Mul", body.op("Mod", place, side), step))

        by_row = along(y, self.rows, body.op("Mul", self._across, self.places), self.cols)
        by_col = along(x, self.cols, self.places, body.ints(1))
        back = body.op("Add", body.reshape(by_row, -1, 1), body.reshape(by_col, 1, -1))
        leading = (windows.batch, windows.windows, windows.heads)
        flat = body.reshape(blocks, *leading, -1, windows.value_dim)
        return body.op("Gather", flat, body.reshape(back, -1), axis=3)
