"""The common part of the bodies of both Nystrom forms: landmarks and their regions."""

from __future__ import annotations

from .body_builder import BodyBuilder
from .window_body import WindowBody


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

    def pooled(self, tokens: str) -> str:
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
        q_landmarks, k_landmarks = self.pooled(q), self.pooled(k)
        right = body.swap(body.op("Mul", k_landmarks, scale), 4)
        return (
            body.op("MatMul", q, right),
            body.op("MatMul", q_landmarks, right),
            body.op("MatMul", body.op("Mul", q_landmarks, scale), body.swap(k, 4)),
        )
