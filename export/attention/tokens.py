"""Linear attention at a token site: landmarks by pooling matrices, then the formula."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...models.geometry import TokenGeometry
from ...plugins.operators import attention
from .mechanism import SiteParameters


def pooling_matrix(grid: tuple[int, int], landmarks: tuple[int, int], like: Tensor) -> Tensor:
    """Return the matrix (m, N) that averages a grid of N tokens, row by row, into m landmarks.

    Args:
        grid: rows and columns of the tokens.
        landmarks: rows and columns of the landmarks; cells are those of adaptive average pooling.
        like: a tensor whose type and device the matrix takes.
    """
    rows = attention.landmark_pool(grid[0], landmarks[0]).to(like)
    columns = attention.landmark_pool(grid[1], landmarks[1]).to(like)
    return torch.kron(rows, columns)


def linear_tokens(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    geometry: TokenGeometry,
    parameters: SiteParameters,
    **more: Any,
) -> Tensor:
    """Return linear attention of q (B, h, N, d), k (B, h, Nk, d), v (B, h, Nk, e).

    Args:
        name: of the function in ``plugins.operators.attention``.
        q: queries.
        k: keys.
        v: values.
        geometry: the grids that landmarks are pooled on, and the scale.
        parameters: landmarks, iterations and start value.
        **more: further arguments of that function.
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
