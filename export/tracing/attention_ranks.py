"""Writes PyTorch's fused attention of any number of axes as one of four, which ONNX has."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .decomposition import write_parts

_AXES = 4
"""Batch, heads, tokens and channels."""


def write_four_axes(graph: fx.Graph) -> bool:
    """Give all fused attention of a graph four axes, in place; return whether any had others.

    Args:
        graph: Graph of a program whose nodes have their values.
    """
    target = torch.ops.aten.scaled_dot_product_attention.default
    others = [
        node
        for node in graph.nodes
        if node.target is target and node.args[0].meta["val"].dim() != _AXES
    ]
    written = [write_parts(graph, node, _of_four_axes, {}, kept=True) for node in others]
    return any(written)


def _of_four_axes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return the attention of (..., N, d) tensors by one of four axes.

    Fewer axes are one head, or one head of one image; more of them before the heads are images.
    Arguments as of ``torch.nn.functional.scaled_dot_product_attention``.
    """
    named: dict[str, Any] = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    axes = query.dim()
    if axes < _AXES:
        query, key, value = (_with_one_head(tensor) for tensor in (query, key, value))
        mask = attn_mask
        if mask is not None and mask.dim() == _AXES - 1:
            mask = mask.unsqueeze(1)
        output = F.scaled_dot_product_attention(query, key, value, mask, **named)
        return output.reshape([*output.shape[:1], *output.shape[2:]][_AXES - 1 - axes :])
    images = list(torch.broadcast_shapes(*(t.shape[:-3] for t in (query, key, value))))
    query, key, value = (_as_images(tensor, images) for tensor in (query, key, value))
    mask = None if attn_mask is None else _mask_of_images(attn_mask, images)
    named["enable_gqa"] = enable_gqa
    output = F.scaled_dot_product_attention(query, key, value, mask, **named)
    return output.reshape([*images, *output.shape[1:]])


def _with_one_head(tensor: Tensor) -> Tensor:
    """Return (B, N, d) as (B, 1, N, d), and (N, d) as (1, 1, N, d)."""
    while tensor.dim() < _AXES - 1:
        tensor = tensor.unsqueeze(0)
    return tensor.unsqueeze(1)


def _as_images(tensor: Tensor, images: list[Any]) -> Tensor:
    """Return (..., h, N, d) as (B, h, N, d), where B is the product of some numbers of images."""
    rest = list(tensor.shape[-3:])
    own = list(tensor.shape[:-3])
    same = len(own) == len(images) and all(
        statically_known_true(one == other) for one, other in zip(own, images, strict=True)
    )
    if not same:
        tensor = tensor.expand([*images, *rest])
    return tensor.reshape([-1, *rest])


def _mask_of_images(mask: Tensor, images: list[Any]) -> Tensor:
    """Return a mask of attention of (..., h, N, N) for that of (B, h, N, N)."""
    if mask.dim() < _AXES:
        return mask
    own, rest = list(mask.shape[:-3]), list(mask.shape[-3:])
    if all(statically_known_true(side == 1) for side in own):
        return mask.reshape([1, *rest])
    return _as_images(mask, images)
