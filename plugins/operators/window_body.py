"""The sizes, tokens and regions of windows as ONNX nodes."""

from __future__ import annotations

from onnx import TensorProto

from .body_builder import BodyBuilder
from .window_moves import GatheredMoves, SteppedMoves

HIDDEN = -1e9
"""Added to the scores of hidden keys: finite, since other channels multiply it by 0."""

REGIONS = 4
"""Regions of a window that a shift cuts down and across."""


class WindowBody:
    """The sizes and indices of a window operator's body; tensors of windows are (B nW, h, N, .).

    Attributes:
        body: Where the nodes go.
        map: The packed map in float32.
        tokens: N, and so on for the other sizes, all int64 scalars.
        sizes: Channels of a head in q, k and v.
    """

    def __init__(self, body: BodyBuilder) -> None:
        self.body = body
        self.map = body.float32(body.inputs[0])
        self.batch, self.height, self.width = (body.size(self.map, axis) for axis in range(3))
        names = ("heads", "head_dim", "value_dim", "window_h", "window_w")
        self.heads, self.head_dim, self.value_dim, self.window_h, self.window_w = (
            body.attribute(name) for name in names
        )
        self.sizes = (self.head_dim, self.head_dim, self.value_dim)
        declared = {attribute.name for attribute in body.schema.attributes}
        self.shift_h, self.shift_w = (
            body.attribute(name) if name in declared else body.ints(0)
            for name in ("shift_h", "shift_w")
        )
        self.tokens = body.op("Mul", self.window_h, self.window_w)
        self.rows = body.op("Div", self.height, self.window_h)
        self.cols = body.op("Div", self.width, self.window_w)
        self.windows = body.op("Mul", self.rows, self.cols)
        self.moves = SteppedMoves(self) if body.stepped else GatheredMoves(self)

    def heads_apart(self) -> tuple[str, str, str]:
        """Return q, k (B nW, h, N, d) and v (B nW, h, N, e) of the rolled map."""
        return self.split(0), self.split(1), self.split(2)

    def split(self, which: int) -> str:
        """Return one of them: 0 is q, 1 is k, 2 is v."""
        return self.moves.split(which)

    def channels(self, which: int, packed: str) -> str:
        """Return the channels (..., h size) of q (0), k (1) or v (2) in a packed map's (..., C)."""
        body = self.body
        keys = body.op("Mul", self.heads, self.head_dim)
        values = body.op("Add", keys, keys)
        end = body.op("Add", values, body.op("Mul", self.heads, self.value_dim))
        bounds = [body.shape(bound) for bound in (body.ints(0), keys, values, end)]
        return body.op("Slice", packed, bounds[which], bounds[which + 1], body.ints([-1]))

    def merge(self, out: str) -> str:
        """Return the map (B, H, W, h e) of the windows' results (B nW, h, N, e)."""
        return self.moves.merge(out)

    def regions(self, rows: str, cols: str) -> str:
        """Return the Swin region of the places of each window, 0 to 3 times ``mask``, (nW, places).

        Args:
            rows: Local rows of the places, int64.
            cols: Local columns of the places, int64.
        """
        body = self.body

        def along(places: str, window: str, shift: str, count: str, shape: list[int]) -> str:
            last = body.op("Equal", body.count(count), body.op("Sub", count, body.ints(1)))
            beyond = body.op("GreaterOrEqual", places, body.op("Sub", window, shift))
            cut = body.op("And", body.reshape(last, -1, 1), body.reshape(beyond, 1, -1))
            number = body.op("Cast", cut, to=TensorProto.INT64)
            sizes: list[str | int] = [count, 1, body.size(places, 0), 1]
            return body.reshape(number, *(sizes[i] for i in shape))

        by_row = along(rows, self.window_h, self.shift_h, self.rows, [0, 1, 2, 3])
        by_col = along(cols, self.window_w, self.shift_w, self.cols, [1, 0, 3, 2])
        region = body.op("Add", body.op("Mul", by_row, body.ints(2)), by_col)
        region = body.op("Mul", region, body.attribute("mask"))
        return body.reshape(region, self.windows, -1)

    def token_regions(self) -> str:
        """Return the region of each token, (nW, N)."""
        return self.regions(self.body.count(self.window_h), self.body.count(self.window_w))

    def same(self, left: str, right: str) -> str:
        """Return which places share a region, (B nW, 1, left, right), from two (nW, places)."""
        body = self.body
        same = body.op(
            "Equal",
            body.op("Unsqueeze", left, body.ints([2])),
            body.op("Unsqueeze", right, body.ints([1])),
        )
        return self.in_every_image(same, 1, body.size(left, 1), body.size(right, 1))

    def in_every_image(self, of_windows: str, *shape: str | int) -> str:
        """Return (B nW, *shape) of a tensor (nW, ...) that is the same in every image."""
        body = self.body
        flat = body.reshape(of_windows, 1, self.windows, -1)
        every = body.op("Expand", flat, body.shape(self.batch, 1, 1))
        return body.reshape(every, -1, *shape)

    def with_regions(self, bias: str | None) -> str:
        """Return a bias that is reduced between regions, (B nW, h or 1, N, N).

        Args:
            bias: (h, N, N), or None for zeros.
        """
        body, regions = self.body, self.token_regions()
        within = body.number(0.0) if bias is None else bias
        between = body.op("Add", within, self._region_penalty())
        return body.op("Where", self.same(regions, regions), within, between)

    def _region_penalty(self) -> str:
        """Return what is added to scores between regions: -100, or what hides keys at any score."""
        body = self.body
        is_hidden = body.op("Greater", body.attribute("mask"), body.ints(1))
        return body.op("Where", is_hidden, body.number(HIDDEN), body.number(-100.0))

    def set_apart(self, q: str, k: str) -> tuple[str, str]:
        """Return q and k with four more channels, which reduce q.k between regions.

        They are -100, or less, for the regions that a query is not in, and 1 for the region of a
        key: within a region exactly 0 is added, and no tensor has a size of windows times squared
        tokens.
        """
        body = self.body
        if body.is_off("mask"):
            return q, k
        regions = body.op("Unsqueeze", self.token_regions(), body.ints([2]))
        step = body.op("Max", body.attribute("mask"), body.ints(1))
        every = body.op("Mul", body.ints(list(range(REGIONS))), step)
        inside = body.op("Equal", regions, every)
        number = body.number
        mask_channels = (
            body.op("Where", inside, number(yes), no)
            for yes, no in ((0.0, self._region_penalty()), (1.0, number(0.0)))
        )
        marked = []
        for tokens, mark in zip((q, k), mask_channels, strict=True):
            mark = self.in_every_image(mark, 1, self.tokens, REGIONS)
            mark = body.op("Expand", mark, body.shape(1, self.heads, 1, 1))
            marked.append(body.op("Concat", tokens, mark, axis=-1))
        return marked[0], marked[1]
