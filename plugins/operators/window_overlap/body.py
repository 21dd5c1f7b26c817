"""``NystraWindowOverlap`` as a model-local ONNX function."""

from __future__ import annotations

import onnx

from ..body_builder import BodyBuilder
from ..window_body import WindowBody
from ..window_body_bias import position_bias
from .schema import SCHEMA


class _Around:
    """The keys of every window, in and around it."""

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

    def split(self, which: int, size: str) -> str:
        """Return k (1) or v (2), (B, nW, h, Nk, size)."""
        windows, body = self.windows, self.windows.body
        nothing = body.ints(0)
        pads = body.shape(nothing, *self.margins, nothing, nothing, *self.margins, nothing)
        padded = body.op("Pad", windows.channels(which), pads)
        places = body.op("Mul", body.op("Mul", self.height, self.width), windows.heads)
        rows = body.reshape(padded, windows.batch, places, size)
        taken = body.op("Gather", rows, self._index(), axis=1)
        return body.reshape(taken, windows.batch, windows.windows, windows.heads, self.keys, size)

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


def body(opset: int) -> onnx.FunctionProto:
    """Return the function for a model of that opset of ONNX.

    Raises:
        NystraError: No body is written for this opset.
    """
    nodes = BodyBuilder(SCHEMA, opset)
    windows = WindowBody(nodes)
    around = _Around(windows)
    q = windows.split(0)
    k, v = around.split(1, windows.head_dim), around.split(2, windows.value_dim)
    logits = nodes.op("MatMul", nodes.op("Mul", q, nodes.attribute("scale")), nodes.swap(k, 5))
    bias = position_bias(windows, nodes.inputs[1], around.rows, around.cols)
    weights = nodes.op("Softmax", nodes.op("Add", logits, bias), axis=-1)
    return nodes.finish(windows.merged(nodes.op("MatMul", weights, v)))
