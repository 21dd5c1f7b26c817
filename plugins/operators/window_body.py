"""Windows as ONNX nodes: one Gather that shifts, partitions and takes heads apart, and one back."""

from __future__ import annotations

from .body_builder import BodyBuilder


class WindowBody:
    """The sizes and indices of a window operator's body.

    Tensors of windows are (B, windows, h, N, .). Where the operator has no mask, tensors of
    regions have one token (landmark) instead of N (m): the comparison then costs nothing.
    """

    def __init__(self, body: BodyBuilder) -> None:
        """Read the sizes off the attributes and the map, the first input."""
        self.body = body
        self.map = body.float32(body.inputs[0])
        self.batch, self.height, self.width = (body.size(self.map, axis) for axis in range(3))
        self.heads, self.head_dim, self.value_dim = (
            body.attribute(name) for name in ("heads", "head_dim", "value_dim")
        )
        self.window_h, self.window_w = body.attribute("window_h"), body.attribute("window_w")
        self.shift_h, self.shift_w = body.attribute("shift_h"), body.attribute("shift_w")
        self.tokens = body.op("Mul", self.window_h, self.window_w)
        self.rows = body.op("Div", self.height, self.window_h)
        self.cols = body.op("Div", self.width, self.window_w)
        self.windows = body.op("Mul", self.rows, self.cols)

    def heads_apart(self) -> tuple[str, str, str]:
        """Return q, k (B, windows, h, N, d) and v (B, windows, h, N, e) of the rolled map."""
        body = self.body
        index = self._partition_index()
        pixels = body.op("Mul", body.op("Mul", self.height, self.width), self.heads)
        qk = body.op("Mul", self.heads, self.head_dim)
        values = body.op("Mul", self.heads, self.value_dim)
        sizes = body.shape(qk, qk, values)
        packed = [body.op("Identity", self.map)]
        packed = self._split(sizes)
        out = []
        for part, size in zip(
            packed, (self.head_dim, self.head_dim, self.value_dim), strict=True
        ):
            rows = body.reshape(part, self.batch, pixels, size)
            taken = body.op("Gather", rows, index, axis=1)
            out.append(
                body.reshape(taken, self.batch, self.windows, self.heads, self.tokens, size)
            )
        return out[0], out[1], out[2]
