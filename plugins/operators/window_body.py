"""Windows as ONNX nodes: one Gather that shifts, partitions and splits heads, and one back."""

from __future__ import annotations

from onnx import TensorProto

from .body_builder import BodyBuilder


class WindowBody:
    """The sizes and indices of a window operator's body; tensors of windows are (B, nW, h, N, .).

    Attributes:
        body: Where the nodes go.
        map: The packed map in float32.
        tokens: N, and so on for the other sizes, all int64 scalars.
    """

    def __init__(self, body: BodyBuilder) -> None:
        """Read the sizes off the attributes and off the map, which is the first input."""
        self.body = body
        self.map = body.float32(body.inputs[0])
        self.batch, self.height, self.width = (body.size(self.map, axis) for axis in range(3))
        names = ("heads", "head_dim", "value_dim", "window_h", "window_w")
        self.heads, self.head_dim, self.value_dim, self.window_h, self.window_w = (
            body.attribute(name) for name in names
        )
        known = {attribute.name for attribute in body.schema.attributes}
        self.shift_h, self.shift_w = (
            body.attribute(name) if name in known else body.ints(0)
            for name in ("shift_h", "shift_w")
        )
        self.tokens = body.op("Mul", self.window_h, self.window_w)
        self.rows = body.op("Div", self.height, self.window_h)
        self.cols = body.op("Div", self.width, self.window_w)
        self.windows = body.op("Mul", self.rows, self.cols)
        self._places = body.op("Mul", body.op("Mul", self.height, self.width), self.heads)

    def heads_apart(self) -> tuple[str, str, str]:
        """Return q, k (B, nW, h, N, d) and v (B, nW, h, N, e) of the rolled map."""
        return self.split(0), self.split(1), self.split(2)

    def split(self, which: int) -> str:
        """Return one of them: 0 is q, 1 is k, 2 is v."""
        body = self.body
        index = self._partition_index()
        size = (self.head_dim, self.head_dim, self.value_dim)[which]
        rows = body.reshape(self.channels(which), self.batch, self._places, size)
        taken = body.op("Gather", rows, index, axis=1)
        return body.reshape(taken, self.batch, self.windows, self.heads, self.tokens, size)

    def channels(self, which: int) -> str:
        """Return the channels (B, H, W, h size) of q (0), k (1) or v (2) in the map."""
        body = self.body
        keys = body.op("Mul", self.heads, self.head_dim)
        values = body.op("Add", keys, keys)
        end = body.op("Add", values, body.op("Mul", self.heads, self.value_dim))
        bounds = [body.shape(bound) for bound in (body.ints(0), keys, values, end)]
        return body.op("Slice", self.map, bounds[which], bounds[which + 1], body.ints([-1]))

    def merged(self, out: str) -> str:
        """Return the map (B, H, W, h e) of the windows' results (B, nW, h, N, e)."""
        body = self.body
        rows = body.reshape(out, self.batch, self._places, self.value_dim)
        pixels = body.op("Gather", rows, self._merge_index(), axis=1)
        channels = body.op("Mul", self.heads, self.value_dim)
        return body.reshape(pixels, self.batch, self.height, self.width, channels)

    def _partition_index(self) -> str:
        """Return the place (y, x, head) in the map of each (row, col, head, token) of windows."""
        body = self.body
        ys = body.op("Mod", body.op("Add", body.count(self.height), self.shift_h), self.height)
        xs = body.op("Mod", body.op("Add", body.count(self.width), self.shift_w), self.width)
        stride = body.op("Mul", self.width, self.heads)
        by_row = body.reshape(body.op("Mul", ys, stride), self.rows, 1, 1, self.window_h, 1)
        by_col = body.reshape(body.op("Mul", xs, self.heads), 1, self.cols, 1, 1, self.window_w)
        by_head = body.reshape(body.count(self.heads), 1, 1, -1, 1, 1)
        index = body.op("Add", body.op("Add", by_col, by_head), by_row)
        return body.reshape(index, -1)

    def _merge_index(self) -> str:
        """Return the place (row, col, head, token) in windows of each (y, x, head) of the map."""
        body = self.body
        per_window = body.op("Mul", self.heads, self.tokens)
        row_stride = body.op("Mul", self.cols, per_window)

        def along(size: str, shift: str, window: str, window_stride: str, stride: str) -> str:
            back = body.op("Sub", body.op("Add", body.count(size), size), shift)
            rolled = body.op("Mod", back, size)
            at = body.op("Mul", body.op("Div", rolled, window), window_stride)
            return body.op("Add", at, body.op("Mul", body.op("Mod", rolled, window), stride))

        ys = along(self.height, self.shift_h, self.window_h, row_stride, self.window_w)
        xs = along(self.width, self.shift_w, self.window_w, per_window, body.ints(1))
        heads = body.op("Mul", body.count(self.heads), self.tokens)
        by_col = body.op("Add", body.reshape(xs, 1, -1, 1), body.reshape(heads, 1, 1, -1))
        return body.reshape(body.op("Add", body.reshape(ys, -1, 1, 1), by_col), -1)

    def regions(self, rows: str, cols: str) -> str:
        """Return the Swin region of the places of each window, (nW, places).

        With mask 0 it is that of one place, (1, 1): what is compared with it then costs nothing.

        Args:
            rows: Local rows of the places, int64.
            cols: Local columns of the places, int64.
        """
        body = self.body

        def along(places: str, window: str, shift: str, count: str, sizes: list[int]) -> str:
            last = body.op("Equal", body.count(count), body.op("Sub", count, body.ints(1)))
            beyond = body.op("GreaterOrEqual", places, body.op("Sub", window, shift))
            cut = body.op("And", body.reshape(last, -1, 1), body.reshape(beyond, 1, -1))
            number = body.op("Cast", cut, to=TensorProto.INT64)
            one = body.ints(1)
            shape: list[str | int] = [count, one, body.size(places, 0), one]
            return body.reshape(number, *(shape[i] for i in sizes))

        by_row = along(rows, self.window_h, self.shift_h, self.rows, [0, 1, 2, 3])
        by_col = along(cols, self.window_w, self.shift_w, self.cols, [1, 0, 3, 2])
        region = body.op("Add", body.op("Mul", by_row, body.ints(2)), by_col)
        places = body.op("Mul", body.size(rows, 0), body.size(cols, 0))
        region = body.reshape(region, self.windows, places)
        ends = body.shape(self._if_masked(self.windows), self._if_masked(places))
        return body.op("Slice", region, body.ints([0, 0]), ends, body.ints([0, 1]))

    def _if_masked(self, size: str) -> str:
        """Return the size with mask 1, and 1 with mask 0."""
        body = self.body
        less = body.op("Sub", size, body.ints(1))
        return body.op("Add", body.op("Mul", less, body.attribute("mask")), body.ints(1))

    def token_regions(self) -> str:
        """Return the region of each token, (nW, N), or (1, 1) with mask 0."""
        return self.regions(self.body.count(self.window_h), self.body.count(self.window_w))

    def same(self, left: str, right: str) -> str:
        """Return which places share a region, (nW, 1, left, right), from two (nW, places)."""
        body = self.body
        return body.op(
            "Equal",
            body.op("Unsqueeze", left, body.ints([1, 3])),
            body.op("Unsqueeze", right, body.ints([1, 2])),
        )
