"""Linear attention at a token site: landmarks by pooling matrices, then the formula."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from ...models.geometry import TokenGeometry
from ...plugins.operators import attention_torch
from .landmarks import Landmarks


def pooling_matrix(grid: tuple[int, ...], landmarks: tuple[int, ...], like: Tensor) -> Tensor:
    """Return the matrix (m, N) that averages a grid of N tokens into m landmarks.

    Tokens are ordered with the last side of the grid running fastest.

    Args:
        grid: Sides of the grid of tokens: rows and columns, or frames before them.
        landmarks: Parts along each side; cells are those of adaptive average pooling.
        like: A tensor whose type and device the matrix takes.
    """
    pools = [
        attention_torch.landmark_pool(side, parts).to(like)
        for side, parts in zip(grid, landmarks, strict=True)
    ]
    return functools.reduce(torch.kron, pools)


def linear_tokens(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    geometry: TokenGeometry,
    mechanism: Landmarks,
    **more: Any,
) -> Tensor:
    """Return linear attention of q (B, h, N, d), k (B, h, Nk, d), v (B, h, Nk, e).

    Tokens before those of the grid (a class token) are landmarks by themselves, and attend exactly.

    Args:
        name: Name of the function in ``plugins.operators.attention_torch``.
        q: Queries.
        k: Keys.
        v: Values.
        geometry: The grids that landmarks are pooled on, and the scale.
        mechanism: Has landmarks, iterations and start value.
        **more: Further arguments of that function.
    """
    before = q.shape[2] - math.prod(geometry.query_grid)
    queries = _landmarks(q, geometry.query_grid, mechanism)
    keys = _landmarks(k, geometry.key_grid, mechanism)
    out: Tensor = getattr(attention_torch, name)(
        q[:, :, before:],
        k,
        v,
        queries,
        keys,
        scale=geometry.scale,
        iterations=mechanism.iterations,
        batch_init=int(mechanism.init == "batch"),
        **more,
    )
    if not before:
        return out
    first = attention_torch.softmax_attention(q[:, :, :before], k, v, geometry.scale)
    return torch.cat([first, out], 2)


def _landmarks(tokens: Tensor, grid: tuple[int, ...], mechanism: Landmarks) -> Tensor:
    """Return the tokens before the grid, and the means of its cells."""
    before = tokens.shape[2] - math.prod(grid)
    cells = pooling_matrix(grid, mechanism.landmarks, tokens) @ tokens[:, :, before:]
    return torch.cat([tokens[:, :, :before], cells], 2) if before else cells
