"""Linear attention at a token site: landmarks by pooling matrices, then the formula."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from ...models.geometry import TokenGeometry
from ...plugins.operators import attention
from .landmarks import Landmarks


def pooling_matrix(grid: tuple[int, ...], landmarks: tuple[int, ...], like: Tensor) -> Tensor:
    """Return the matrix (m, N) that averages a grid of N tokens into m landmarks.

    The last side of the grid runs fastest.

    Args:
        grid: Sides of the grid of tokens: rows and columns, or frames before them.
        landmarks: Parts along each side; cells are those of adaptive average pooling.
        like: A tensor whose type and device the matrix takes.
    """
    pools = [
        attention.landmark_pool(side, parts).to(like)
        for side, parts in zip(grid, landmarks, strict=True)
    ]
    return functools.reduce(torch.kron, pools)


def linear_tokens(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    geometry: TokenGeometry,
    parameters: Landmarks,
    **more: Any,
) -> Tensor:
    """Return linear attention of q (B, h, N, d), k (B, h, Nk, d), v (B, h, Nk, e).

    Args:
        name: Of the function in ``plugins.operators.attention``.
        q: Queries.
        k: Keys.
        v: Values.
        geometry: The grids that landmarks are pooled on, and the scale.
        parameters: Landmarks, iterations and start value.
        **more: Further arguments of that function.
    """
    queries = pooling_matrix(geometry.query_grid, parameters.landmarks, q) @ q
    keys = pooling_matrix(geometry.key_grid, parameters.landmarks, k) @ k
    out: Tensor = getattr(attention, name)(
        q,
        k,
        v,
        queries,
        keys,
        scale=geometry.scale,
        iterations=parameters.iterations,
        batch_init=int(parameters.init == "batch"),
        **more,
    )
    return out
