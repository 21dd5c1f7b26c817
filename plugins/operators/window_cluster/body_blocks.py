"""The blocks of a window as ONNX nodes; the last of a side may be smaller, and is padded."""

from __future__ import annotations

from ..window_body import WindowBody


class Blocks:
    """The division of the tokens of a window into blocks.

    Attributes:
        rows: Rows of a block, and so on for the other sizes, all int64 scalars.
        places: Positions in a block: rows times columns.
        count: Blocks of a window.
        coarse: In which block of the coarse bias each block is, (blocks).
    """

    def __init__(self, windows: WindowBody) -> None:
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
        self._across = across
        self._places = body.op("Mul", self.count, self.places)
        self._padded_rows = body.op("Mul", down, self.rows)
        self._padded_cols = body.op("Mul", across, self.cols)

        first_row = body.op("Div", body.op("Mul", body.count(down), self.rows), coarse)
        first_col = body.op("Div", body.op("Mul", body.count(across), self.cols), coarse)
        wide = self._over(windows.window_w, coarse)
        first_row = body.reshape(body.op("Mul", first_row, wide), -1, 1)
        self.coarse = body.reshape(body.op("Add", first_row, body.reshape(first_col, 1, -1)), -1)

        ys = body.reshape(body.count(self._padded_rows), down, 1, self.rows, 1)
        xs = body.reshape(body.count(self._padded_cols), 1, across, 1, self.cols)
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
        body = self._body
        return body.op("Div", body.op("Add", size, body.op("Sub", side, body.ints(1))), side)

    def real(self, axis: int) -> str:
        """Return 1 for positions with a token and 0 for padding.

        Returns:
            (h blocks, places), with an axis of 1 before the last one or behind it.
        """
        body = self._body
        real = self.for_heads(body.reshape(self._real, 1, self.count, self.places), self.places)
        return body.op("Unsqueeze", body.reshape(real, -1, self.places), body.ints([axis]))

    def for_heads(self, of_blocks: str, size: str) -> str:
        """Expand a value that is the same for all heads or blocks to (h, blocks, size)."""
        body = self._body
        return body.op("Expand", of_blocks, body.shape(self._windows.heads, self.count, size))

    def cut(self, tokens: str) -> str:
        """Return (B nW, h blocks, places, c) of tokens (B nW, h, N, c)."""
        windows, body = self._windows, self._body
        channels = body.size(tokens, 3)
        if body.stepped:
            rows, cols = self._padded_rows, self._padded_cols
            grid = body.reshape(tokens, -1, windows.window_h, windows.window_w, channels)
            nothing = body.ints(0)
            missing = (
                body.op("Sub", rows, windows.window_h),
                body.op("Sub", cols, windows.window_w),
            )
            grid = body.op("Pad", grid, body.shape(*[nothing] * 5, *missing, nothing))
            grid = body.reshape(
                grid, -1, self.rows, self._across, body.op("Mul", self.cols, channels)
            )
            pieces = body.op("Transpose", grid, perm=[0, 2, 1, 3])
        else:
            pieces = body.op("Gather", tokens, self._tokens, axis=2)
        blocks = body.op("Mul", windows.heads, self.count)
        return body.reshape(pieces, -1, blocks, self.places, channels)

    def join(self, blocks: str) -> str:
        """Return (B nW, h, N, e) of (B nW, h blocks, places, e)."""
        windows, body = self._windows, self._body
        if body.stepped:
            across = body.op("Mul", self.cols, windows.value_dim)
            pieces = body.reshape(blocks, -1, self._across, self.rows, across)
            grid = body.op("Transpose", pieces, perm=[0, 2, 1, 3])
            grid = body.reshape(grid, -1, self._padded_rows, self._padded_cols, windows.value_dim)
            ends = body.shape(windows.window_h, windows.window_w)
            grid = body.op("Slice", grid, body.ints([0, 0]), ends, body.ints([1, 2]))
            return body.reshape(grid, -1, windows.heads, windows.tokens, windows.value_dim)
        flat = body.reshape(blocks, -1, windows.heads, self._places, windows.value_dim)
        return body.op("Gather", flat, self._tokens_in_blocks(), axis=2)

    def _tokens_in_blocks(self) -> str:
        """Return the place (block, place) of each token."""
        windows, body = self._windows, self._body
        y, x = body.count(windows.window_h), body.count(windows.window_w)

        def along(place: str, side: str, block_step: str, step: str) -> str:
            block = body.op("Mul", body.op("Div", place, side), block_step)
            return body.op("Add", block, body.op("Mul", body.op("Mod", place, side), step))

        by_row = along(y, self.rows, body.op("Mul", self._across, self.places), self.cols)
        by_col = along(x, self.cols, self.places, body.ints(1))
        back = body.op("Add", body.reshape(by_row, -1, 1), body.reshape(by_col, 1, -1))
        return body.reshape(back, -1)
