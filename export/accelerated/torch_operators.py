"""How PyTorch computes the operators of ONNX: one row for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor
from torch.nn import functional as F

from .torch_layers import (
    Attributes,
    batch_norm,
    convolution,
    gemm,
    layer_norm,
    only,
    pooling,
    resize,
    transposed_convolution,
)

Compute = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """How an operator is computed.

    Attributes:
        compute: Takes the attributes and the inputs; returns a tensor, or a tuple of several.
        sizes: Number of inputs before those that are sizes, axes or other small numbers, which are
            given as lists.
    """

    compute: Compute
    sizes: int = 99


TYPES: dict[int, torch.dtype] = {
    int(getattr(ir.DataType, name)): getattr(torch, kind)
    for name, kind in {
        "FLOAT": "float32",
        "FLOAT16": "float16",
        "BFLOAT16": "bfloat16",
        "DOUBLE": "float64",
        "INT8": "int8",
        "INT16": "int16",
        "INT32": "int32",
        "INT64": "int64",
        "UINT8": "uint8",
        "BOOL": "bool",
    }.items()
}
"""Types of PyTorch by their numbers in ONNX."""


def attributes_of(node: ir.Node) -> Attributes:
    """Return the attributes of a node, as rows take them."""
    values = {name: attribute.value for name, attribute in node.attributes.items()}
    return {n: list(v) if isinstance(v, (list, tuple)) else v for n, v in values.items()}


def _plain(function: Callable[..., Any]) -> Row:
    return Row(lambda _, *inputs: function(*inputs))


def _all(function: Callable[[Tensor, Tensor], Tensor]) -> Row:
    """Return the row of an operator with any number of inputs."""

    def compute(_: Attributes, first: Tensor, *others: Tensor) -> Tensor:
        for other in others:
            first = function(first, other)
        return first

    return Row(compute)


def _divided(_: Attributes, one: Tensor, other: Tensor) -> Tensor:
    whole = not one.is_floating_point()
    return torch.div(one, other, rounding_mode="trunc") if whole else one / other


def _clip(_: Attributes, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Any:
    x = x if low is None else torch.maximum(x, low.to(x))
    return x if high is None else torch.minimum(x, high.to(x))


def _prelu(_: Attributes, x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, x * slope, x)


def _constant(attributes: Attributes) -> Tensor:
    ((name, value),) = attributes.items()
    if name == "value":
        return torch.from_numpy(np.array(value.numpy()))
    return torch.tensor(value, dtype=torch.float32 if "float" in name else torch.int64)


def _reshape(attributes: Attributes, x: Tensor, sizes: Sequence[int]) -> Tensor:
    kept = [] if attributes.get("allowzero") else [at for at, n in enumerate(sizes) if n == 0]
    return x.reshape([x.shape[at] if at in kept else n for at, n in enumerate(sizes)])


def _flatten(attributes: Attributes, x: Tensor) -> Tensor:
    axis = attributes.get("axis", 1)
    axis += x.dim() if axis < 0 else 0
    return x.reshape(math.prod(x.shape[:axis]), -1)


def _transpose(attributes: Attributes, x: Tensor) -> Tensor:
    return x.permute(attributes.get("perm") or [*reversed(range(x.dim()))])


def _squeeze(_: Attributes, x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(_: Attributes, x: Tensor, axes: Sequence[int]) -> Tensor:
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _split(attributes: Attributes, x: Tensor, sizes: Sequence[int] | None = None) -> Any:
    axis = attributes.get("axis", 0)
    whole = x.shape[axis]
    return x.split(list(sizes) if sizes else -(-whole // attributes["num_outputs"]), axis)


def _slice(
    _: Attributes,
    x: Tensor,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:
    axes, steps = axes or range(len(starts)), steps or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        places = range(*slice(start, end, step).indices(x.shape[axis]))
        if step > 0:
            x = x[(*[slice(None)] * (axis % x.dim()), slice(places.start, places.stop, step))]
        else:
            x = x.index_select(axis, torch.tensor(places, dtype=torch.int64, device=x.device))
    return x


def _gather(attributes: Attributes, x: Tensor, index: Tensor) -> Tensor:
    axis = attributes.get("axis", 0) % x.dim()
    places: tuple[slice | Tensor, ...] = (*[slice(None)] * axis, index.long())
    made: Tensor = x[places]
    return made


def _scatter_nd(attributes: Attributes, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    only(attributes, reduction="none")
    return x.index_put(tuple(index.unbind(-1)), updates)


def _scatter(attributes: Attributes, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    only(attributes, reduction="none")
    axis = attributes.get("axis", 0)
    return x.scatter(axis, index % x.shape[axis], updates)


def _expand(_: Attributes, x: Tensor, sizes: Sequence[int]) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(sizes)))


def _pad(
    attributes: Attributes,
    x: Tensor,
    pads: Sequence[int],
    value: Sequence[float] | None = None,
    axes: Sequence[int] | None = None,
) -> Tensor:
    axes, half = axes or range(x.dim()), len(pads) // 2
    mode = attributes.get("mode", "constant")
    for axis, before, after in zip(axes, pads[:half], pads[half:], strict=True):
        if before == after == 0:
            continue
        last, from_end = x.shape[axis] - 1, x.dim() - 1 - axis % x.dim()
        places = torch.arange(-before, last + 1 + after, device=x.device)
        if mode == "constant":
            x = F.pad(x, [*[0, 0] * from_end, before, after], value=value[0] if value else 0)
        elif mode == "reflect":
            x = x.index_select(axis, last - (last - places.abs()).abs())
        else:
            outside = places.clamp(0, last) if mode == "edge" else places % (last + 1)
            x = x.index_select(axis, outside)
    return x


def _depth_to_space(attributes: Attributes, x: Tensor) -> Tensor:
    block = attributes["blocksize"]
    if attributes.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, block, block, channels // block**2, height, width)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(batch, -1, height * block, width * block)


def _shape(attributes: Attributes, x: Tensor) -> Tensor:
    return torch.tensor(x.shape[attributes.get("start", 0) : attributes.get("end")])


def _constant_of_shape(attributes: Attributes, sizes: Sequence[int]) -> Tensor:
    value = attributes.get("value")
    kind = torch.zeros(1) if value is None else torch.from_numpy(np.array(value.numpy()))
    return kind.reshape(()).repeat([*sizes]) if sizes else kind.reshape(())


def _reduced(function: Callable[..., Tensor]) -> Row:
    def compute(attributes: Attributes, x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
        axes = axes or attributes.get("axes")
        if not axes and attributes.get("noop_with_empty_axes"):
            return x
        keep = bool(attributes.get("keepdims", 1))
        return function(x, tuple(axes or range(x.dim())), keepdim=keep)

    return Row(compute, 1)


def _place(function: Callable[..., Tensor]) -> Row:
    """Return the row of an operator that finds a place, of equal numbers the first one."""

    def compute(attributes: Attributes, x: Tensor) -> Tensor:
        only(attributes, select_last_index=0)
        return function(x, attributes.get("axis", 0), bool(attributes.get("keepdims", 1)))

    return Row(compute)


def _top_k(attributes: Attributes, x: Tensor, count: Sequence[int]) -> Any:
    axis, largest = attributes.get("axis", -1), bool(attributes.get("largest", 1))
    ordered = x.sort(dim=axis, descending=largest, stable=True)  # equal ones: the first of them
    return tuple(part.narrow(axis, 0, count[0]) for part in ordered)


def _gather_nd(attributes: Attributes, x: Tensor, index: Tensor) -> Tensor:
    only(attributes, batch_dims=0)
    made: Tensor = x[tuple(index.unbind(-1))]
    return made


def _cum_sum(attributes: Attributes, x: Tensor, axis: Sequence[int]) -> Tensor:
    only(attributes, exclusive=0, reverse=0)
    return x.cumsum(axis[0])


_PLAIN: dict[str, Callable[..., Any]] = {
    "Abs": torch.abs,
    "And": torch.logical_and,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Equal": torch.eq,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Identity": lambda x: x,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Log": torch.log,
    "MatMul": torch.matmul,
    "Mul": torch.mul,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Or": torch.logical_or,
    "Pow": torch.pow,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Softplus": F.softplus,
    "Sqrt": torch.sqrt,
    "Sub": torch.sub,
    "Tanh": torch.tanh,
    "Where": torch.where,
}
"""Operators without attributes, as functions of their inputs."""

OPERATORS: dict[str, Row] = {
    **{name: _plain(function) for name, function in _PLAIN.items()},
    "Add": _all(torch.add),
    "Max": _all(torch.maximum),
    "Min": _all(torch.minimum),
    "Div": Row(_divided),
    "Mod": Row(lambda a, x, y: torch.fmod(x, y) if a.get("fmod") else torch.remainder(x, y)),
    "Clip": Row(_clip),
    "Elu": Row(lambda a, x: F.elu(x, a.get("alpha", 1.0))),
    "Gelu": Row(lambda a, x: F.gelu(x, approximate=a.get("approximate", "none"))),
    "HardSigmoid": Row(lambda a, x: (a.get("alpha", 0.2) * x + a.get("beta", 0.5)).clamp(0.0, 1.0)),
    "HardSwish": _plain(F.hardswish),
    "LeakyRelu": Row(lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01))),
    "PRelu": Row(_prelu),
    "Cast": Row(lambda a, x: x.to(TYPES[a["to"]])),
    "CastLike": _plain(lambda x, like: x.to(like.dtype)),
    "Constant": Row(_constant),
    "ConstantOfShape": Row(_constant_of_shape, 0),
    "Range": _plain(lambda *ends: torch.arange(*(end.item() for end in ends), dtype=ends[0].dtype)),
    "Shape": Row(_shape),
    "Size": _plain(lambda x: torch.tensor(x.numel())),
    "Reshape": Row(_reshape, 1),
    "Flatten": Row(_flatten),
    "Transpose": Row(_transpose),
    "Squeeze": Row(_squeeze, 1),
    "Unsqueeze": Row(_unsqueeze, 1),
    "Split": Row(_split, 1),
    "Concat": Row(lambda a, *xs: torch.cat(xs, a["axis"])),
    "Slice": Row(_slice, 1),
    "Gather": Row(_gather),
    "GatherElements": Row(
        lambda a, x, i: x.gather(a.get("axis", 0), i % x.shape[a.get("axis", 0)])
    ),
    "GatherND": Row(_gather_nd),
    "ScatterND": Row(_scatter_nd),
    "ScatterElements": Row(_scatter),
    "Expand": Row(_expand, 1),
    "Tile": Row(lambda _, x, counts: x.repeat(counts), 1),
    "Pad": Row(_pad, 1),
    "DepthToSpace": Row(_depth_to_space),
    "Trilu": Row(
        lambda a, x, k=(0,): torch.triu(x, k[0]) if a.get("upper", 1) else torch.tril(x, k[0]), 1
    ),
    "CumSum": Row(_cum_sum, 1),
    "ReduceMean": _reduced(torch.mean),
    "ReduceSum": _reduced(torch.sum),
    "ReduceMax": _reduced(torch.amax),
    "ReduceMin": _reduced(torch.amin),
    "ReduceL1": _reduced(lambda x, axes, keepdim: x.abs().sum(axes, keepdim=keepdim)),
    "ReduceL2": _reduced(lambda x, axes, keepdim: torch.linalg.vector_norm(x, 2, axes, keepdim)),
    "ReduceSumSquare": _reduced(lambda x, axes, keepdim: (x * x).sum(axes, keepdim=keepdim)),
    "ArgMax": _place(torch.argmax),
    "ArgMin": _place(torch.argmin),
    "TopK": Row(_top_k, 1),
    "Softmax": Row(lambda a, x: x.softmax(a.get("axis", -1))),
    "LogSoftmax": Row(lambda a, x: x.log_softmax(a.get("axis", -1))),
    "Conv": Row(convolution),
    "ConvTranspose": Row(transposed_convolution),
    "MaxPool": Row(lambda a, x: pooling(a, x, largest=True)),
    "AveragePool": Row(lambda a, x: pooling(a, x, largest=False)),
    "GlobalAveragePool": _plain(lambda x: x.mean([*range(2, x.dim())], keepdim=True)),
    "GlobalMaxPool": _plain(lambda x: x.amax([*range(2, x.dim())], keepdim=True)),
    "Gemm": Row(gemm),
    "Einsum": Row(lambda a, *xs: torch.einsum(a["equation"], *xs)),
    "LayerNormalization": Row(layer_norm),
    "InstanceNormalization": Row(
        lambda a, x, scale, bias: F.instance_norm(
            x, weight=scale, bias=bias, eps=a.get("epsilon", 1e-5)
        )
    ),
    "GroupNormalization": Row(
        lambda a, x, scale, bias: F.group_norm(
            x, a["num_groups"], scale, bias, a.get("epsilon", 1e-5)
        )
    ),
    "BatchNormalization": Row(batch_norm),
    "Resize": Row(resize, 1),
}
"""The operators, by name."""
