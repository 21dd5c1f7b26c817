"""Performer (Choromanski et al., 2021): softmax attention by positive random features (FAVOR+)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from ..geometry import TokenGeometry
from .attention import Attention

Kernel: TypeAlias = Literal["softmax", "relu"]

_SOFTMAX_FLOOR = 1e-4  # added to every feature, so that no sum is 0
_RELU_FLOOR = 1e-3


def orthogonal_features(count: int, size: int, seed: int) -> Tensor:
    """Return directions (count, size), float32: orthogonal in blocks of ``size``.

    The lengths of the rows are those of Gaussian vectors, so that a row by itself is Gaussian.
    """
    random = np.random.default_rng(seed)
    blocks = [
        np.linalg.qr(random.standard_normal((size, size)))[0].T for _ in range(0, count, size)
    ]
    lengths = np.linalg.norm(random.standard_normal((count, size)), axis=1, keepdims=True)
    rows = np.concatenate(blocks)[:count] * lengths
    return torch.from_numpy(np.ascontiguousarray(rows, np.float32))


def performer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    directions: Tensor,
    scale: float,
    kernel: Kernel = "softmax",
) -> Tensor:
    """Return phi(q) (phi(k)^T v) / (phi(q) . sum of phi(k)), (B, h, N, e).

    With x of a query or key times the root of ``scale``, phi(x) is

    * ``softmax``: r^-0.5 (exp(W x - |x|^2 / 2 - M) + 1e-4), so that phi(q) . phi(k) is about
      exp(scale q.k). M, which keeps exp in range, is the largest entry of W x: of each query by
      itself, of the keys over all tokens of a head.
    * ``relu``: max(W x, 0) + 1e-3, an attention of its own and no approximation of softmax.

    Args:
        q: (B, h, N, d).
        k: (B, h, Nk, d).
        v: (B, h, Nk, e).
        directions: W, (r, d).
        scale: Factor of q.k.
        kernel: ``softmax`` or ``relu``.
    """
    root = scale**0.5
    queries, keys = (
        _features(tokens * root, directions, kernel, over)
        for tokens, over in ((q, (-1,)), (k, (-2, -1)))
    )
    weights = queries @ keys.sum(-2).unsqueeze(-1)
    return queries @ (keys.transpose(-2, -1) @ v) / weights


def _features(x: Tensor, directions: Tensor, kernel: Kernel, over: tuple[int, ...]) -> Tensor:
    along = x @ directions.t()
    if kernel == "relu":
        return along.relu() + _RELU_FLOOR
    half = x.square().sum(-1, keepdim=True) / 2
    positive = (along - half - along.amax(over, keepdim=True)).exp()
    return (positive + _SOFTMAX_FLOOR) * float(len(directions) ** -0.5)


class _Directions(nn.Module):
    """Where the published layer keeps its random directions."""

    projection_matrix: Tensor

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("projection_matrix", matrix)


class Performer(Attention):
    """Attention by random features, drawn once and kept in the state dict.

    The published layer divides queries and keys by d^(1/4) twice, so that it computes with
    q.k / d and not with q.k / sqrt(d): the geometry says so, for what may take its place too.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        grid: tuple[int, int],
        *,
        rp_dim: int,
        kernel: Kernel,
        seed: int,
        **common: Any,
    ) -> None:
        """Build the layers; arguments as for `Attention`.

        Args:
            width: Channels of a token.
            heads: Attention heads.
            grid: Rows and columns of the tokens.
            rp_dim: Random features, r.
            kernel: ``softmax`` or ``relu``.
            seed: Seed of the directions.
            **common: Further arguments of `Attention`.
        """
        super().__init__(width, heads, grid, **common)
        size = width // heads
        self.geometry = replace(self.geometry, scale=1 / size)
        self.kernel = kernel
        self.attn_fn = _Directions(orthogonal_features(rp_dim, size, seed))
        self.implementation = self.by_features

    def by_features(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
    ) -> Tensor:
        """Return the trained attention; a bias between tokens is not possible."""
        directions = self.attn_fn.projection_matrix
        return performer_attention(q, k, v, directions, geometry.scale, self.kernel)
