"""Operators that only move elements, applied to numbers instead of data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.ports.port import Shape
from ..execute.reference import compute_node
from .places import extend, reshape_shared

Shapes = Sequence[Shape]
Parts = list[Tensor | None]
Move = Callable[[ir.Node, Parts, Shapes], list[Tensor]]
"""Takes a node, numbers or constants of its inputs, and the shapes of its results."""


def read_attribute(node: ir.Node, name: str, default: object = None) -> object:
    """Return the value of a node's attribute."""
    entry = node.attributes.get(name)
    if entry is None:
        return default
    return entry.value


def read_integer(node: ir.Node, name: str, default: int = 0) -> int:
    """Return an attribute that is a whole number."""
    value = read_attribute(node, name, default)
    return int(value)  # type: ignore[call-overload, no-any-return]


def require(parts: Sequence[Tensor | None], at: int = 0) -> Tensor:
    """Return an input that a node must have."""
    part = parts[at] if at < len(parts) else None
    if part is None:
        raise ValueError(f"input {at} is missing")
    return part


def read_numbers(
    node: ir.Node,
    parts: Sequence[Tensor | None],
    name: str,
    at: int,
) -> list[int] | None:
    """Return whole numbers that are an input, or an attribute in older opsets; None if neither."""
    if at < len(parts) and parts[at] is not None:
        return [int(number) for number in require(parts, at).flatten()]
    listed = read_attribute(node, name)
    if listed is None:
        return None
    return [int(number) for number in listed]  # type: ignore[attr-defined]


def along(axes: Sequence[int], *tensors: Tensor) -> tuple[list[Tensor], list[int]]:
    """Return tensors with length 1 along all other axes that share memory in each of them.

    Returns:
        The tensors, and the lengths that their result is expanded to; -1 for unchanged ones.
    """
    first = tensors[0]
    lengths = [-1] * first.dim()
    corner = [slice(None)] * first.dim()
    for axis in range(first.dim()):
        lengths_here = {t.shape[axis] for t in tensors}
        shares_memory = [t.stride(axis) == 0 or t.shape[axis] == 1 for t in tensors]
        if axis not in axes and all(shares_memory) and len(lengths_here) == 1:
            lengths[axis] = first.shape[axis]
            corner[axis] = slice(1)
    return [tensor[tuple(corner)] for tensor in tensors], lengths


def reshape(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Move elements of an operator that keeps their order."""
    return [reshape_shared(require(parts), outs[0])]


def expand(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Move elements of ``Expand``."""
    return [require(parts).expand(outs[0])]


def transpose(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Move elements of ``Transpose``."""
    x = require(parts)
    reversed_axes = list(range(x.dim()))[::-1]
    order = read_attribute(node, "perm") or reversed_axes
    return [x.permute(*order)]  # type: ignore[misc]


def cut(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Move elements of ``Slice``."""
    x = require(parts)
    starts = read_numbers(node, parts, "starts", 1) or []
    ends = read_numbers(node, parts, "ends", 2) or []
    axes = read_numbers(node, parts, "axes", 3) or [*range(len(starts))]
    steps = read_numbers(node, parts, "steps", 4) or [1] * len(starts)
    slices = zip(starts, ends, axes, steps, strict=True)
    for start, end, axis, step in slices:
        numbers = range(x.shape[axis])[start:end:step]
        index = torch.tensor(numbers, dtype=torch.int64)
        at = axis % x.dim()
        if step > 0:
            first = 0
            if len(index):
                first = int(index[0])
            run = slice(first, first + step * len(index), step)
            before = (slice(None),) * at
            x = x[(*before, run)]
        else:
            (corner,), lengths = along([at], x)
            x = corner.index_select(at, index).expand(lengths)
    return [x]


def gather(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Move elements of ``Gather``."""
    x = require(parts)
    index = require(parts, 1).long()
    axis = read_integer(node, "axis") % x.dim()
    index = torch.where(index < 0, index + x.shape[axis], index)
    if index.dim() == 0:
        return [x.select(axis, int(index))]
    (corner,), lengths = along([axis], x)
    elements_at = corner.index_select(axis, index.flatten())
    before = lengths[:axis]
    after = lengths[axis + 1 :]
    sides = elements_at.shape
    shape = [*sides[:axis], *index.shape, *sides[axis + 1 :]]
    elements_at = elements_at.reshape(shape)
    same = [-1] * index.dim()
    return [elements_at.expand(*before, *same, *after)]


def concat(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Move elements of ``Concat``."""
    tensors = [part for part in parts if part is not None]
    axis = read_integer(node, "axis") % tensors[0].dim()
    corners, lengths = along([axis], *tensors)
    return [torch.cat(corners, axis).expand(lengths)]


def split(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Move elements of ``Split``."""
    x = require(parts)
    axis = read_integer(node, "axis") % x.dim()
    return list(x.split([out[axis] for out in outs], axis))


def tile(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Move elements of ``Tile``."""
    repeats = require(parts, 1).tolist()
    axes = [axis for axis, times in enumerate(repeats) if times != 1]
    (corner,), lengths = along(axes, require(parts))
    return [corner.repeat(repeats).expand(lengths)]


def read_amounts(
    node: ir.Node,
    parts: Sequence[Tensor | None],
    rank: int,
) -> list[tuple[int, int]]:
    """Return what ``Pad`` adds before and after each axis."""
    amounts = read_numbers(node, parts, "pads", 1) or []
    axes = read_numbers(node, parts, "axes", 3) or [*range(rank)]
    pairs = [(0, 0)] * rank
    for at, axis in enumerate(axes):
        pairs[axis] = (amounts[at], amounts[at + len(axes)])
    return pairs


def read_fill(node: ir.Node, parts: Sequence[Tensor | None]) -> tuple[str, float]:
    """Return the mode and the value of ``Pad``."""
    value = parts[2] if len(parts) > 2 else None
    fill = 0.0 if value is None else float(value)
    return str(read_attribute(node, "mode", "constant")), fill


def pad_places(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Return the places of ``Pad``: those of a map go on beyond it."""
    places = require(parts)
    amounts = read_amounts(node, parts, places.dim())
    for axis, (before, after) in enumerate(amounts):
        if before or after:
            (corner,), lengths = along([axis], places)
            places = extend(corner, axis, before, after).expand(lengths)
    return [places]


def pad_numbers(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Return numbers of ``Pad`` with zeros beyond."""
    numbers = require(parts)
    pairs = read_amounts(node, parts, numbers.dim())
    last_first = [amount for pair in pairs[::-1] for amount in pair]
    return [F.pad(numbers, last_first)]


def as_onnx_does(node: ir.Node, parts: Parts, outs: Shapes) -> list[Tensor]:
    """Move elements by the reference of ONNX itself, for rare operators."""
    opset = node.graph.opset_imports.get("", 18)  # type: ignore[union-attr]
    inputs = [None if part is None else part.contiguous().numpy() for part in parts]
    proto = ir.serde.serialize_node(node)
    results = compute_node(proto, inputs, opset)
    return [torch.from_numpy(np.ascontiguousarray(array)) for array in results]


def number_elements(shape: Sequence[int]) -> Tensor:
    """Return the number of each element of a tensor."""
    return torch.arange(math.prod(shape)).reshape(tuple(shape))
