"""Writes a body whose exact attention is ONNX's own operator, which engines fuse."""

from __future__ import annotations

from .body_builder import BodyBuilder


class FusedBody(BodyBuilder):
    """Writes the body of one node with ``Attention``, of opset 23 and later."""

    fused = True

    def attend(self, q: str, k: str, v: str, bias: str | None, scores: tuple[str, str]) -> str:
        """Return softmax(q k^T + bias) v, (A, h, N, e); arguments as of `BodyBuilder.attend`."""
        if bias is None:
            return self.op("Attention", q, k, v, scale=1.0)
        # Engines read a last axis of 1 in other ways, and some take no other of 1: ONNX's mask has
        # all queries and keys.
        mask = self.op("Expand", bias, self.shape(1, 1, *scores))
        return self.op("Attention", q, k, v, mask, scale=1.0)
