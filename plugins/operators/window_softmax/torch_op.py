"""``NystraWindowSoftmax`` in torch: a plain function and ``torch.ops.nystra.window_softmax``."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from ....core.errors import NystraError
from ..attention_torch import softmax_attention
from ..operator_torch import register
from ..schema import OperatorSchema
from ..window_geometry import WindowGeometry
from ..windows_torch import check_map, empty_map, merge, partition, token_regions
from .schema import SCHEMA


def relative_position_bias(
    table: Tensor, *window: int, keys: tuple[int, ...] | None = None
) -> Tensor:
    """Return the bias (h, N, Nk) of every pair of query and key.

    Args:
        table: ((wh+kh-1)(ww+kw-1), h) for a window of kh x kw keys, the entry of (query a, key b)
            at (row_a - row_b + kh - 1)(ww + kw - 1) + (col_a - col_b + kw - 1), rows and columns
            counted from the corner of each window; likewise for windows of more sides.
        *window: Sides of the window.
        keys: Sides of the window of keys, the window by default.

    Raises:
        NystraError: The table belongs to another window.
    """
    sides = list(zip(window, keys or window, strict=True))
    rows = math.prod(query + key - 1 for query, key in sides)
    if table.dim() != 2 or table.shape[0] != rows:
        formula = "((2 wh - 1)(2 ww - 1), heads)"
        what = f"windows of {' x '.join(map(str, window))}"
        if keys is not None:
            formula = "((wh + kh - 1)(ww + kw - 1), heads)"
            what += f" with keys of {' x '.join(map(str, keys))}"
        raise NystraError(
            f"a bias table of shape {tuple(table.shape)}; expected ({rows}, heads) = {formula} "
            f"for {what}"
        )
    queries = _numbers(window, sides, table.device)
    key_numbers = queries if keys is None else _numbers(keys, sides, table.device)
    index = queries[:, None] + (key_numbers[-1] - key_numbers)[None, :]
    bias: Tensor = table[index]
    return bias.permute(2, 0, 1)


def _numbers(window: tuple[int, ...], sides: list[tuple[int, int]], device: torch.device) -> Tensor:
    """Return the place of each token of a window as one number (N,), its digits those of a row."""
    axes = [torch.arange(side, device=device) for side in window]
    number = torch.zeros((), dtype=torch.int64, device=device)
    for place, (query, key) in zip(torch.meshgrid(axes, indexing="ij"), sides, strict=True):
        number = number * (query + key - 1) + place
    return number.flatten()


def softmax_windows(qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
    """Return exact window attention (B, *sides, h e), differentiable, in windows of any rank.

    Args:
        qkv: (B, *sides, h(2d+e)), packed q, k, v and each (head, channel).
        bias_table: As ``relative_position_bias`` takes it, or None for no bias.
        geometry: How the map is cut.

    Raises:
        NystraError: The map is not a multiple of the window, or the table is of another window.
    """
    check_map(SCHEMA.name, qkv, geometry)
    batch, *sides, _ = qkv.shape
    q, k, v = partition(qkv, geometry)
    added: Tensor | None = None
    if bias_table is not None:
        added = window_bias(bias_table, geometry).to(qkv.dtype)
        added = added.unsqueeze(0)  # with four dimensions: PyTorch fuses no attention with three
    if geometry.masked and geometry.shifted:
        regions = token_regions(sides, geometry, qkv.device)
        other_region = regions.unsqueeze(-1) != regions.unsqueeze(-2)  # (windows, N, N)
        lowered = -math.inf if geometry.hidden else -100.0
        masked = torch.zeros_like(other_region, dtype=qkv.dtype).masked_fill(other_region, lowered)
        masked = masked.unsqueeze(1)
        added = masked if added is None else masked + added
        added = added.expand(batch, *added.shape).flatten(0, 1)
    q, k, v = _equally_wide(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1))
    out = softmax_attention(q, k, v, geometry.scale, added)
    return merge(out[..., : geometry.value_dim].unflatten(0, (batch, -1)), sides, geometry)


def _equally_wide(*parts: Tensor) -> list[Tensor]:
    """Return queries, keys and values with equal widths, padded with zeros.

    If their widths differ, PyTorch stores the scores of a whole window, and takes four times as
    long at 4,096 tokens.
    """
    widest = max(part.shape[-1] for part in parts)
    return [
        part if part.shape[-1] == widest else F.pad(part, (0, widest - part.shape[-1]))
        for part in parts
    ]


def window_bias(table: Tensor, geometry: WindowGeometry) -> Tensor:
    """Return the bias (h, N, Nk) of every pair of query and key of a window."""
    keys = geometry.key_window if geometry.overlapping else None
    return relative_position_bias(table, *geometry.window, keys=keys)


def window_softmax(qkv: Tensor, bias_table: Tensor | None = None, **attributes: float) -> Tensor:
    """Return exact window attention (B, H, W, h e), differentiable.

    Args:
        qkv: (B, H, W, h(2d+e)), packed q, k, v and each (head, channel).
        bias_table: ((2wh-1)(2ww-1), h), read with ``bias`` 1 only.
        **attributes: Those of the schema.

    Raises:
        NystraError: The schema refuses the attributes, the map is not a multiple of the window, or
            the table is of another window.
    """
    return softmax_windows_of(SCHEMA, qkv, bias_table, attributes)


def softmax_windows_of(
    schema: OperatorSchema, qkv: Tensor, bias_table: Tensor | None, attributes: Mapping[str, float]
) -> Tensor:
    """Return `softmax_windows` with the attributes of an operator.

    Raises:
        NystraError: The schema refuses the attributes, or ``bias`` is 1 without a table.
    """
    checked = schema.validate(attributes)
    if checked["bias"] and bias_table is None:
        raise NystraError(f"{schema.name}: bias is 1, but there is no bias_table")
    geometry = WindowGeometry.of(checked)
    return softmax_windows(qkv, bias_table if checked["bias"] else None, geometry)


register(SCHEMA, window_softmax, empty_map(SCHEMA.name))
