"""Writes PyTorch's fused attention so that its translation to ONNX computes the same.

The translation takes four axes, and gives a query whose keys are all hidden the mean of all values
or NaN, where PyTorch gives zeros.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.export import ExportedProgram

from .decomposition import write_parts
from .lowering import name_of
from .torch_sizes import statically_known_true

_AXES = 4
"""Batch, heads, tokens and channels."""


_MIXING = frozenset(
    re.findall(
        r"\w+",
        "matmul mm bmm addmm baddbmm linear einsum convolution conv1d conv2d conv3d softmax "
        "layer_norm group_norm batch_norm",
    )
)
"""Operators of whose results no element is -inf because of a mask."""


def write_attention(graph: fx.Graph, finite: Collection[str], *, in_pieces: bool) -> bool:
    """Write all fused attention of a graph that is not translated right, in place.

    Args:
        graph: Graph of a program whose nodes have their values.
        finite: Names of its weights and constants of which no element is -inf.
        in_pieces: Whether the translation is products and a softmax; otherwise it is ``Attention``.

    Returns:
        Whether something was written.
    """
    target = torch.ops.aten.scaled_dot_product_attention.default
    written = False
    for node in list(graph.nodes):
        if node.target is not target:
            continue
        mask = node.kwargs.get("attn_mask")
        if len(node.args) > 3:
            mask = node.args[3]
        attend: Callable[..., Tensor] = F.scaled_dot_product_attention
        if mask is not None and _may_hide_all(mask, finite):
            attend = functools.partial(_zeros_where_hidden, in_pieces=in_pieces)
        elif mask is not None and not in_pieces:
            attend = _with_whole_mask
        elif node.args[0].meta["val"].dim() == _AXES:
            continue
        parts = functools.partial(_of_four_axes, attend)
        written = write_parts(graph, node, parts, {}, keep=True) or written
    if written:
        _reshape_views(graph)
    return written


def _reshape_views(graph: fx.Graph) -> None:
    """Write views as reshapes: results that are written anew lie otherwise in memory."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default


def _may_hide_all(mask: fx.Node, finite: Collection[str]) -> bool:
    """Return whether a mask may hide all keys of a query: it is bool or may have -inf."""
    if mask.meta["val"].dtype == torch.bool:
        return True
    seen, waiting = {mask}, [mask]
    while waiting:
        node = waiting.pop()
        if node.op != "call_function" and node.name not in finite:
            return True
        if name_of(node) in _MIXING:
            continue
        numbers = (*node.args, *node.kwargs.values())
        if name_of(node).startswith("log") or -math.inf in numbers:
            return True
        new = {operand for operand in node.all_input_nodes if operand not in seen}
        seen |= new
        waiting += new
    return False


def finite_constants(program: ExportedProgram) -> set[str]:
    """Return the names of a program's weights and constants of which no element is -inf."""
    signature, tensors = program.graph_signature, {**program.constants, **program.state_dict}
    places = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    finite = set()
    for name, place in places.items():
        tensor = tensors.get(place)
        if isinstance(tensor, Tensor) and not bool(tensor.isneginf().any()):
            finite.add(name)
    return finite


def _with_whole_mask(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **named: Any
) -> Tensor:
    """Return the attention of (B, h, N, d) tensors; onnxruntime's takes whole masks of pairs."""
    tokens = query.shape[-2]
    keys = key.shape[-2]
    expanded = mask.expand([*mask.shape[:-2], tokens, keys])
    return F.scaled_dot_product_attention(query, key, value, expanded, **named)


def _zeros_where_hidden(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    *,
    in_pieces: bool,
    scale: float | None = None,
    enable_gqa: bool = False,
    **_: Any,
) -> Tensor:
    """Return the attention of (B, h, N, d) tensors, zeros for queries whose keys are all hidden."""
    zero, bias = query.new_zeros(()), mask
    if mask.dtype == torch.bool:
        lowest = query.new_full((), -math.inf)
        bias = torch.where(mask, zero, lowest)
    hidden = (bias == -math.inf).all(-1, keepdim=True)
    channels = query.shape[-1]
    if not in_pieces or not isinstance(channels, int):
        output = _with_whole_mask(query, key, value, bias, scale=scale, enable_gqa=enable_gqa)
        return torch.where(hidden, zero, output)
    if enable_gqa:
        shared = query.shape[-3] // key.shape[-3]
        key = key.repeat_interleave(shared, -3)
        shared = query.shape[-3] // value.shape[-3]
        value = value.repeat_interleave(shared, -3)
    factor = channels**-0.5 if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1) + bias
    weights = torch.where(hidden, zero, scores.softmax(-1))
    return weights @ value


def _of_four_axes(
    attend: Callable[..., Tensor],
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
    Arguments as of ``torch.nn.functional.scaled_dot_product_attention``, and ``attend``, which
    computes it with four axes.
    """
    named: dict[str, Any] = {
        "dropout_p": dropout_p,
        "is_causal": is_causal,
        "scale": scale,
    }
    axes = query.dim()
    if axes == _AXES:
        return attend(query, key, value, attn_mask, **named, enable_gqa=enable_gqa)
    if axes < _AXES:
        query = _with_one_head(query)
        key = _with_one_head(key)
        value = _with_one_head(value)
        mask = attn_mask
        if mask is not None and mask.dim() == _AXES - 1:
            mask = mask.unsqueeze(1)
        output = attend(query, key, value, mask, **named)
        batch, _, *rest = output.shape
        return output.reshape([batch, *rest][_AXES - 1 - axes :])
    shapes = [tensor.shape[:-3] for tensor in (query, key, value)]
    images = list(torch.broadcast_shapes(*shapes))
    query = _as_images(query, images)
    key = _as_images(key, images)
    value = _as_images(value, images)
    mask = None if attn_mask is None else _mask_of_images(attn_mask, images)
    named["enable_gqa"] = enable_gqa
    output = attend(query, key, value, mask, **named)
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
    pairs = zip(own, images, strict=False)
    same = len(own) == len(images)
    same = same and all(statically_known_true(side == other) for side, other in pairs)
    if not same:
        tensor = tensor.expand([*images, *rest])
    return tensor.reshape([-1, *rest])


def _mask_of_images(mask: Tensor, images: list[Any]) -> Tensor:
    """Return a mask of attention of (..., h, N, N) for that of (B, h, N, N)."""
    if mask.dim() < _AXES:
        return mask
    leading = list(mask.shape[:-3])
    matrices = list(mask.shape[-3:])
    if all(statically_known_true(side == 1) for side in leading):
        return mask.reshape([1, *matrices])
    return _as_images(mask, images)
