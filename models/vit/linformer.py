"""Linformer (Wang et al., 2020): keys and values projected to few tokens by trained matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...plugins.operators.attention_torch import softmax_attention
from ..geometry import TokenGeometry
from .attention import Attention


def linformer_attention(
    q: Tensor, k: Tensor, v: Tensor, key_matrix: Tensor, value_matrix: Tensor, scale: float
) -> Tensor:
    """Return softmax(scale q (E k)^T) (F v), (B, h, N, e).

    Args:
        q: (B, h, N, d).
        k: (B, h, Nk, d).
        v: (B, h, Nk, e).
        key_matrix: E, (m, L) or (h, m, L) with L at least Nk: the first Nk columns are used.
        value_matrix: F, shaped as E.
        scale: Factor of the scores.
    """
    keys, values = (
        matrix[..., : tokens.shape[-2]] @ tokens
        for matrix, tokens in ((key_matrix, k), (value_matrix, v))
    )
    return softmax_attention(q, keys, values, scale)


class Linformer(Attention):
    """Attention with trained projections, the same in all heads or one for each."""

    def __init__(
        self,
        width: int,
        heads: int,
        grid: tuple[int, int],
        *,
        length: int,
        linformer_k: int,
        shared: bool,
        **common: Any,
    ) -> None:
        """Build the layers; arguments as for `Attention`.

        Args:
            width: Channels of a token.
            heads: Attention heads.
            grid: Rows and columns of the tokens.
            length: Tokens that it was trained with; it takes no more.
            linformer_k: Tokens that keys and values are projected to.
            shared: All heads have the same projections.
            **common: Further arguments of `Attention`.
        """
        super().__init__(width, heads, grid, **common)
        shape = (linformer_k, length) if shared else (heads, linformer_k, length)
        self.E_K = nn.Parameter(torch.randn(shape) / length**0.5)
        self.E_V = nn.Parameter(torch.randn(shape) / length**0.5)
        self.implementation = self.project

    def project(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
    ) -> Tensor:
        """Return the trained attention; a bias between tokens is not possible."""
        return linformer_attention(q, k, v, self.E_K, self.E_V, geometry.scale)
