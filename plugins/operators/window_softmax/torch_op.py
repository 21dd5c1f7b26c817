"""``NystraWindowSoftmax`` in torch: a plain function and ``torch.ops.nystra.window_softmax``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import NystraError
from ..attention import softmax_attention
from ..operator_torch import register
from ..window_geometry import WindowGeometry
from ..windows_torch import check_map, empty_map, merge, partition, token_regions
from .schema import SCHEMA


def relative_position_bias(table: Tensor, *window: int) -> Tensor:
    """Return the bias (h, N, N) of every pair of query and key.

    Args:
        table: ((2wh-1)(2ww-1), h), the entry of (query a, key b) at
            (row_a - row_b + wh - 1)(2ww - 1) + (col_a - col_b + ww - 1); likewise for windows
            of more sides.
        *window: Sides of the window.

    Raises:
        NystraError: The table is of another window.
    """
    rows = math.prod(2 * side - 1 for side in window)
    if table.dim() != 2 or table.shape[0] != rows:
        raise NystraError(
            f"a bias table of shape {tuple(table.shape)}; expected ({rows}, heads) = "
            f"((2 wh - 1)(2 ww - 1), heads) for windows of {' x '.join(map(str, window))}"
        )
    axes = [torch.arange(side, device=table.device) for side in window]
    places = [grid.flatten() for grid in torch.meshgrid(axes, indexing="ij")]
    index = torch.zeros((), dtype=torch.int64, device=table.device)
    for place, side in zip(places, window, strict=True):
        offset = place[:, None] - place[None, :] + side - 1
        index = index * (2 * side - 1) + offset
    bias: Tensor = table[index]
    return bias.permute(2, 0, 1)


def softmax_windows(qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
    """Return exact window attention (B, *sides, h e), differentiable, in windows of any rank.

    Args:
        qkv: (B, *sides, h(2d+e)), packed q, k, v and each (head, channel).
        bias_table: As ``relative_position_bias`` takes it, or None for no bias.
        geometry: How the map is cut.

    Raises:
        NystraError: The map is no multiple of the window, or the table is of another window.
    """
    check_map(SCHEMA.name, qkv, geometry)
    batch, *sides, _ = qkv.shape
    q, k, v = partition(qkv, geometry)
    added: Tensor | None = None
    if bias_table is not None:
        added = relative_position_bias(bias_table, *geometry.window).to(qkv.dtype)
        added = added.unsqueeze(0)  # of four dimensions: PyTorch fuses no attention with three
    if geometry.masked and geometry.shifted:
        regions = token_regions(sides, geometry, qkv.device)
        apart = regions.unsqueeze(-1) != regions.unsqueeze(-2)  # (windows, N, N)
        masked = -100.0 * apart.to(qkv.dtype).unsqueeze(1)
        added = masked if added is None else masked + added
        added = added.expand(batch, *added.shape).flatten(0, 1)
    out = softmax_attention(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), geometry.scale, added
    )
    return merge(out.unflatten(0, (batch, -1)), sides, geometry)


def window_softmax(qkv: Tensor, bias_table: Tensor | None = None, **attributes: float) -> Tensor:
    """Return exact window attention (B, H, W, h e), differentiable.

    Args:
        qkv: (B, H, W, h(2d+e)), packed q, k, v and each (head, channel).
        bias_table: ((2wh-1)(2ww-1), h), read with ``bias`` 1 only.
        **attributes: Those of the schema.

    Raises:
        NystraError: The schema refuses the attributes, the map is no multiple of the window, or
            the table is of another window.
    """
    checked = SCHEMA.validate(attributes)
    if checked["bias"] and bias_table is None:
        raise NystraError(f"{SCHEMA.name}: bias is 1, but no bias_table is given")
    geometry = WindowGeometry.of(checked)
    return softmax_windows(qkv, bias_table if checked["bias"] else None, geometry)


register(SCHEMA, window_softmax, empty_map(SCHEMA.name))
