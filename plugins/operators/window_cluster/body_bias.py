"""The position bias of a window as ONNX nodes: of each pair in a block, and its mean exp."""

from __future__ import annotations

from ..window_body import WindowBody
from .body_blocks import Blocks


class Bias:
    """The bias of each head, zeros where ``bias`` is 0; h is 1 then.

    Attributes:
        blocks: Blocks of the coarse bias, in a window: an int64 scalar.
    """

    def __init__(self, windows: WindowBody, table: str) -> None:
        """Read the table, and average exp(bias) over the pairs of each two coarse blocks."""
        body = self._body = windows.body
        self._windows = windows
        bias, one = body.attribute("bias"), body.ints(1)

        def if_bias(size: str) -> str:
            less = body.op("Mul", body.op("Sub", size, one), bias)
            return body.op("Add", less, one)

        rows, cols = self._span(windows.window_h), self._span(windows.window_w)
        entries = body.op("Mul", rows, cols)
        listed, heads = if_bias(entries), if_bias(windows.heads)
        count = body.shape(body.op("Mul", listed, heads))
        read = body.op("Slice", body.reshape(body.float32(table), -1), body.ints([0]), count)
        by_head = body.op("Transpose", body.reshape(read, listed, heads), perm=[1, 0])
        below = body.op("Sub", by_head, body.reduce("ReduceMax", by_head, -1))  # so exp is <= 1
        used = body.op("Where", body.is_on("bias"), below, body.number(0.0))
        self._table = body.op("Expand", used, body.shape(heads, entries))
        self._starts: list[str] = []

        by_row, by_col = (
            self._overlaps(windows.window_h, rows),
            self._overlaps(windows.window_w, cols),
        )
        down, across = (body.size(starts, 0) for starts in self._starts)
        self.blocks = body.op("Mul", down, across)
        grid = body.reshape(body.op("Exp", self._table), heads, rows, cols)
        mean = body.op("MatMul", body.op("MatMul", by_row, grid), body.swap(by_col, 2))
        mean = body.reshape(mean, heads, down, down, across, across)
        mean = body.op("Transpose", mean, perm=[0, 1, 3, 2, 4])
        self._mean = body.reshape(mean, heads, self.blocks, self.blocks)
        number = body.count(self.blocks)
        self._same = body.op("Equal", body.reshape(number, -1, 1), body.reshape(number, 1, -1))

    def _span(self, size: str) -> str:
        body = self._body
        return body.op("Sub", body.op("Add", size, size), body.ints(1))

    def _overlaps(self, size: str, offsets: str) -> str:
        """Return which share of the pairs of two coarse blocks is at each offset, from 1 - size on.

        Returns:
            (count count, 2 size - 1) for the blocks of query and key.
        """
        body, one = self._body, self._body.ints(1)
        side = body.attribute("bias_block")
        count = body.op("Div", body.op("Add", size, body.op("Sub", side, one)), side)
        start = body.op("Mul", body.count(count), side)
        end = body.op("Min", body.op("Add", start, side), size)
        self._starts.append(start)
        offset = body.op("Sub", body.count(offsets), body.op("Sub", size, one))

        def pair(what: str, place: str) -> str:
            keys = body.op("Add", body.reshape(place, 1, -1, 1), offset)
            return body.op(what, body.reshape(place, -1, 1, 1), keys)

        pairs = body.op("Relu", body.float32(body.op("Sub", pair("Min", end), pair("Max", start))))
        length = body.float32(body.op("Sub", end, start))
        total = body.op("Mul", body.reshape(length, -1, 1, 1), body.reshape(length, 1, -1, 1))
        return body.reshape(body.op("Div", pairs, total), -1, offsets)

    def block_means(self, windows: WindowBody) -> str:
        """Return the mean for each two blocks of one region, 0 for others and for one with itself.

        Returns:
            (B nW, h, blocks, blocks).
        """
        body = self._body
        regions = windows.regions(*self._starts)
        off = body.op("Where", self._same, body.number(0.0), self._mean)
        return body.op("Where", windows.same(regions, regions), off, body.number(0.0))

    def inside(self) -> str:
        """Return the mean for each block with itself, (h, blocks, 1)."""
        body = self._body
        own_mean = body.op("Where", self._same, self._mean, body.number(0.0))
        return body.reduce("ReduceSum", own_mean, -1)

    def own(self, blocks: Blocks) -> str:
        """Return the bias of each pair of places of one block, (h blocks, places, places)."""
        body, windows = self._body, self._windows
        place = body.count(blocks.places)

        def offsets(which: str, size: str) -> str:
            at = body.op(which, place, blocks.cols)
            distance = body.op("Sub", body.reshape(at, -1, 1), body.reshape(at, 1, -1))
            return body.op("Add", distance, body.op("Sub", size, body.ints(1)))

        row = body.op("Mul", offsets("Div", windows.window_h), self._span(windows.window_w))
        index = body.reshape(body.op("Add", row, offsets("Mod", windows.window_w)), -1)
        own_bias = body.op(
            "Unsqueeze", body.op("Gather", self._table, index, axis=1), body.ints([1])
        )
        pairs = body.op("Mul", blocks.places, blocks.places)
        return body.reshape(blocks.for_heads(own_bias, pairs), -1, blocks.places, blocks.places)
