"""Operators with weights or windows: products, convolutions, norms, pools and resizing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .resizing import resize
from .values import within_bounds


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.dim() > 1 and b.dim() > 1:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        within_bounds([*batch, a.shape[-2], b.shape[-1]])
    return torch.matmul(a, b)


def _gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's name)
    transB: int = 0,  # noqa: N803
) -> Tensor:
    product = _matmul(a.T if transA else a, b.T if transB else b)
    product = product if alpha == 1 else alpha * product
    if c is None:
        return product
    return product + (c if beta == 1 else beta * c)


def _pads(
    x: Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
) -> list[int]:
    """Return the padding before and after each side, in the form of ``F.pad``."""
    rank = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        both = []
        for size, reach, step, gap in zip(x.shape[2:], kernel, strides, dilations, strict=True):
            total = max(0, (-(-size // step) - 1) * step + (reach - 1) * gap + 1 - size)
            less, more = total // 2, total - total // 2
            both.append((less, more) if auto_pad == "SAME_UPPER" else (more, less))
    elif pads is None or auto_pad == "VALID":
        both = [(0, 0)] * rank
    else:
        listed = list(pads or ())
        both = list(zip(listed[:rank], listed[rank:], strict=True))
    return [amount for before, behind in reversed(both) for amount in (before, behind)]


def _symmetric(flat: Sequence[int]) -> list[int] | None:
    """Return pads by side if both ends of each are equal, otherwise None."""
    before, behind = list(flat[::2]), list(flat[1::2])
    return before[::-1] if before == behind else None


def _ones_unless(rank: int, *attributes: Sequence[int] | None) -> Iterator[list[int]]:
    """Return attributes of a convolution or pooling as lists, ones by default."""
    return (list(attribute or [1] * rank) for attribute in attributes)


def _conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
) -> Tensor:
    rank = weight.dim() - 2
    steps, gaps = _ones_unless(rank, strides, dilations)
    flat = _pads(x, weight.shape[2:], steps, gaps, pads, auto_pad)
    same = _symmetric(flat)
    if same is None:
        x, same = F.pad(x, flat), [0] * rank
    return torch.convolution(x, weight, bias, steps, same, gaps, False, [0] * rank, group)


def _conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
) -> Tensor:
    rank = weight.dim() - 2
    listed = list(pads or [0] * 2 * rank)
    if auto_pad != "NOTSET" or listed[:rank] != listed[rank:]:
        raise ValueError("a ConvTranspose whose pads differ between both ends is not supported")
    steps, gaps = _ones_unless(rank, strides, dilations)
    more = list(output_padding or [0] * rank)
    return torch.convolution(x, weight, bias, steps, listed[:rank], gaps, True, more, group)


def _layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    return F.layer_norm(x, x.shape[axis % x.dim() :], weight, bias, epsilon)


def _batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor:
    if training_mode:
        raise ValueError("a BatchNormalization in training mode is not supported")
    return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, epsilon)


def _instance_norm(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    return F.instance_norm(x, None, None, weight, bias, eps=epsilon)


def _group_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    channels = x.shape[1]
    if weight.numel() == num_groups != channels:  # one factor a group before opset 21
        weight, bias = (t.repeat_interleave(channels // num_groups) for t in (weight, bias))
    return F.group_norm(x, num_groups, weight, bias, epsilon)


def _lp_norm(x: Tensor, axis: int = -1, p: int = 2) -> Tensor:
    norm = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    return torch.where(norm == 0, torch.zeros_like(x), x / norm)


def _softmax(x: Tensor, axis: int = -1) -> Tensor:
    return torch.softmax(x, axis)


def _log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    return torch.log_softmax(x, axis)


def _max_pool(
    x: Tensor,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: int = 0,
    storage_order: int = 0,
    auto_pad: str = "NOTSET",
) -> Tensor:
    rank = len(kernel_shape)
    steps, gaps = _ones_unless(rank, strides, dilations)
    flat = _pads(x, kernel_shape, steps, gaps, pads, auto_pad)
    padded = F.pad(x, flat, value=-math.inf) if any(flat) else x
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    return pool(padded, list(kernel_shape), steps, 0, gaps, ceil_mode=bool(ceil_mode))


def _average_pool(
    x: Tensor,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    auto_pad: str = "NOTSET",
) -> Tensor:
    rank = len(kernel_shape)
    steps, gaps = _ones_unless(rank, strides, dilations)
    same = _symmetric(_pads(x, kernel_shape, steps, gaps, pads, auto_pad))
    if same is None or set(gaps) != {1} or ceil_mode:
        raise ValueError(
            "an AveragePool whose pads differ between both ends, with dilations or a ceil_mode is "
            "not supported"
        )
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
    return pool(x, list(kernel_shape), steps, same, False, bool(count_include_pad))


def _global_average_pool(x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.dim())), keepdim=True)


def _global_max_pool(x: Tensor) -> Tensor:
    return x.amax(tuple(range(2, x.dim())), keepdim=True)


LAYERS: dict[str, Callable[..., Tensor]] = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average_pool,
    "GlobalMaxPool": _global_max_pool,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_norm,
    "MatMul": _matmul,
    "MaxPool": _max_pool,
    "Resize": resize,
    "Softmax": _softmax,
}
"""Operator of ONNX -> what computes it."""
