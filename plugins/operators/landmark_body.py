"""The common part of the bodies of both Nystrom forms: landmarks and their regions."""

from __future__ import annotations

from .body_builder import BodyBuilder
from .pinv_body import pinv_nodes
from .window_body import WindowBody

_PINV = "NystraPinv"


class LandmarkBody(WindowBody):
    """A window operator with landmarks; tensors of landmarks are (B nW, h, m, d)."""

    def __init__(self, body: BodyBuilder) -> None:
        super().__init__(body)
        self.landmark_rows = body.attribute("landmark_rows")
        self.landmark_cols = body.attribute("landmark_cols")
        self.landmarks = body.op("Mul", self.landmark_rows, self.landmark_cols)
        self._row_pool, row_starts = self._cells(self.window_h, self.landmark_rows)
        self._col_pool, col_starts = self._cells(self.window_w, self.landmark_cols)
        tokens, cells = self.token_regions(), self.regions(row_starts, col_starts)
        self.left_same = self.same(tokens, cells)
        self.upper_same = self.same(cells, tokens)
        self.core_same = self.same(cells, cells)
        self._cell_regions = cells

    def _cells(self, n: str, parts: str) -> tuple[str, str]:
        """Return the matrix (parts, n) of adaptive average pooling, and each cell's start."""
        body = self.body
        cell = body.count(parts)
        starts = body.op("Div", body.op("Mul", cell, n), parts)
        next_start = body.op("Mul", body.op("Add", cell, body.ints(1)), n)
        rounding = body.op("Sub", parts, body.ints(1))
        ends = body.op("Div", body.op("Add", next_start, rounding), parts)
        place = body.reshape(body.count(n), 1, -1)
        inside = body.op(
            "And",
            body.op("GreaterOrEqual", place, body.reshape(starts, -1, 1)),
            body.op("Less", place, body.reshape(ends, -1, 1)),
        )
        sizes = body.float32(body.reshape(body.op("Sub", ends, starts), -1, 1))
        return body.op("Div", body.float32(inside), sizes), starts

    def pool(self, tokens: str) -> str:
        """Return the landmarks (B nW, h, m, d) of q or k (B nW, h, N, d)."""
        body = self.body
        across = body.op("Mul", self.window_w, self.head_dim)
        rows = body.op("Mul", self.heads, self.landmark_rows)
        grid = body.reshape(tokens, -1, self.heads, self.window_h, across)
        by_row = body.op("MatMul", self._row_pool, grid)
        grid = body.reshape(by_row, -1, rows, self.window_w, self.head_dim)
        cells = body.op("MatMul", self._col_pool, grid)
        return body.reshape(cells, -1, self.heads, self.landmarks, self.head_dim)

    def logits(self, q: str, k: str) -> tuple[str, str, str]:
        """Return scale q.k for G_L (.., N, m), A (.., m, m) and G_U (.., m, N)."""
        body = self.body
        scale = body.attribute("scale")
        q_landmarks, k_landmarks = self.pool(q), self.pool(k)
        right = body.swap(body.op("Mul", k_landmarks, scale), 4)
        return (
            body.op("MatMul", q, right),
            body.op("MatMul", q_landmarks, right),
            body.op("MatMul", body.op("Mul", q_landmarks, scale), body.swap(k, 4)),
        )

    def inverse(self, core: str) -> str:
        """Return Z (B nW, h, m, m) of A, whose entries between regions are 0 or count as 0.

        The body of a model's nodes holds ``NystraPinv`` once for each of their settings, so that
        engines take its kernel or plugin; a node with other settings gets NaN. It knows no regions,
        so each region of a cut window is a matrix of its own, 0 elsewhere: those of the first
        region of every window, then of the second in the last column of windows, of the third in
        the last row and of the fourth in the corner. A body of any node, and of one alone, has the
        steps of the pseudoinverse.
        """
        body = self.body
        if not body.served:
            return pinv_nodes(body, core, 4, self.landmarks, self.core_same)
        per_matrix = body.op("Sub", body.ints(1), body.attribute("batch_init"))
        regions = body.op("Mul", self._cell_regions, per_matrix)
        grid = (self.rows, self.cols, 1, self.landmarks, self.landmarks)
        across = body.op("Unsqueeze", regions, body.ints([2]))
        down = body.op("Unsqueeze", regions, body.ints([1]))
        alike = body.op("Equal", across, down)
        sized = (self.rows, self.cols, self.heads, self.landmarks, self.landmarks)
        matrices = body.reshape(core, -1, *sized)
        parts, shapes, insides = [], [], []
        for region, axes in enumerate(([], [2], [1], [1, 2])):  # of the grid of windows, cut to 1
            inside = body.op("And", alike, body.op("Equal", across, body.ints(region)))
            inside = body.reshape(inside, 1, *grid)
            insides.append(inside)
            part = body.op(
                "Where", self._last(inside, axes), self._last(matrices, axes), body.number(0.0)
            )
            shapes.append(body.op("Shape", part))
            parts.append(body.reshape(part, -1, self.landmarks, self.landmarks))
        inverses = self._invert(body.op("Concat", *parts, axis=0))
        z, start = body.number(0.0), body.ints([0])
        for part, shape, inside in zip(parts, shapes, insides, strict=True):
            end = body.op("Add", start, body.op("Reshape", body.size(part, 0), body.ints([1])))
            own = body.op("Slice", inverses, start, end, body.ints([0]))
            z = body.op("Where", inside, body.op("Reshape", own, shape), z)
            start = end
        return body.reshape(z, -1, self.heads, self.landmarks, self.landmarks)

    def _invert(self, matrices: str) -> str:
        body = self.body
        z = body.number(float("nan"))
        for iterations, batch_init in sorted(
            {(v["iterations"], v["batch_init"]) for v in body.served}
        ):
            own = body.call(_PINV, matrices, iterations=iterations, batch_init=batch_init)
            same_iterations = body.op("Equal", body.attribute("iterations"), body.ints(iterations))
            same_init = body.op("Equal", body.attribute("batch_init"), body.ints(batch_init))
            z = body.op("Where", body.op("And", same_iterations, same_init), own, z)
        return z

    def _last(self, tensor: str, axes: list[int]) -> str:
        """Return the last row and column of windows, (B, rows, cols, ...) with 1 on those axes."""
        body = self.body
        if not axes:
            return tensor
        end = body.ints([2**31 - 1] * len(axes))
        return body.op("Slice", tensor, body.ints([-1] * len(axes)), end, body.ints(axes))
