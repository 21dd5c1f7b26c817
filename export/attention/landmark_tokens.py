"""Linear attention of token sites: landmarks by pooling matrices, then the formula."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from ...models.geometry import TokenGeometry
from ...plugins.operators import attention_torch
from ...plugins.operators.pinv.torch_op import pinv
from .implementation import Form, in_form
from .landmarks import Landmarks

MAX_OF_ONE_NODE = 48
"""Most landmarks for which the kernel of ``NystraPinv`` is faster than the products of matrices
that onnxruntime computes one by one."""


def make_pooling(
    grid: tuple[int, ...],
    landmarks: tuple[int, ...],
    like: Tensor,
) -> Tensor:
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
    form: Form,
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
        form: ``operator``: the pseudoinverse is one node where its kernel is faster.
        **more: Further arguments of that function.
    """
    before, key_before = geometry.tokens_before(q.shape[2], k.shape[2])
    queries = _landmarks(q, before, geometry.query_grid, mechanism)
    keys = _landmarks(k, key_before, geometry.key_grid, mechanism)
    tokens = q[:, :, before:], k, v, queries, keys
    out = _attend(name, tokens, geometry.scale, mechanism, form, **more)
    if not before:
        return out
    own_q = q[:, :, :before]
    first = attention_torch.softmax_attention(own_q, k, v, geometry.scale)
    return torch.cat([first, out], 2)


def _pool(side: int, parts: int, like: Tensor) -> Tensor:
    """Return `attention_torch.landmark_pool` (parts, side) of a side that may be free."""
    part = torch.arange(parts, device=like.device).unsqueeze(1)
    place = torch.arange(side, device=like.device)
    begin = part * side // parts
    end = ((part + 1) * side + parts - 1) // parts
    inside = (place >= begin) & (place < end)
    sizes = (end - begin).to(like.dtype)
    return inside.to(like.dtype) / sizes


def _attend(
    name: str,
    tokens: tuple[Tensor, ...],
    scale: float,
    mechanism: Landmarks,
    form: Form,
    **more: Any,
) -> Tensor:
    is_small = tokens[-1].shape[-2] <= MAX_OF_ONE_NODE
    few = is_small and tokens[0].dtype != torch.float64
    if form == "operator" and few:
        more["inverse"] = _one_node
    out: Tensor = getattr(attention_torch, name)(
        *tokens,
        scale=scale,
        iterations=mechanism.iterations,
        batch_init=int(mechanism.init == "batch"),
        **more,
    )
    return out


def _one_node(
    a: Tensor,
    iterations: int,
    batch_init: bool | int,
    regions: None,
) -> Tensor:
    """Return the pseudoinverse as a node ``NystraPinv``, which knows no regions."""
    return in_form(pinv, "operator")(a, iterations=iterations, batch_init=int(batch_init))


def _landmarks(
    tokens: Tensor,
    before: int,
    grid: tuple[int, ...],
    mechanism: Landmarks,
) -> Tensor:
    parts = mechanism.on(grid)
    rest = tokens[:, :, before:]
    if all(type(side) is int for side in grid):
        cells = make_pooling(grid, parts, tokens) @ rest
    else:
        rows, columns = grid
        down, along = parts
        lines = rest.unflatten(2, (rows, columns)).flatten(3)
        strips = _pool(rows, down, tokens) @ lines
        strips = strips.unflatten(3, (columns, -1))
        cells = _pool(columns, along, tokens) @ strips
        cells = cells.flatten(2, 3)
    if before:
        return torch.cat([tokens[:, :, :before], cells], 2)
    return cells
