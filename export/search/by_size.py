"""Constants of a graph whose elements depend on the size of its inputs, not only their shapes.

Two sizes do not show how a constant depends on the size: ``clamp(300 / rows, max=1)`` is 1 at all
small ones. What is computed from a length that differs between them may be anything at a third one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from ...core.ports.port import Shape
from ..execute.names import list_names
from ..execute.parts import find_reads, graphs_of
from ..execute.sized import Sized
from .operators import Kind, rule_of

Shapes = dict[str, Shape]

_LONGER = 320, 1280
"""By how many pixels longer images are, about, that masks are looked at for."""

_ANY_MASK = 1e6
"""Larger numbers, and infinity, are equal masks."""

_MOST_LENGTHS = 1024
"""Most elements of a tensor that is followed element by element, as lists of lengths are."""

_FEW_VALUES = 8
"""Most numbers of a tensor that are counted in a pass each; a mask has two or three."""

_COUNTING = ("CumSum", "Einsum", "Gemm", "MatMul", "NonZero")
"""Operators beside the reductions that may count the elements of a tensor."""

_SHAPED = ("Reshape", "Expand")
"""Operators whose inputs after the first give a shape, and no elements."""


def find_varying(graph: ir.Graph, sized: Sized, other: Sized) -> frozenset[str]:
    """Return the names of the values without pixels whose elements depend on the size.

    Args:
        graph: The graph.
        sized: It at one size.
        other: It at another size, in all free axes.
    """
    varying: dict[str, Tensor] = {}
    for node in graph:
        names = list_names(node.outputs)
        if any(name in sized.data for name in names) or node.op_type == "ConstantOfShape":
            continue
        parts = _find_varying_elements(node, sized, other, varying)
        for name, part in zip(names, parts, strict=False):
            if part.any():
                varying[name] = part
    return frozenset(varying)


def longer_sizes(graph: ir.Graph, sized: Sized, other: Sized) -> list[list[Shapes]]:
    """Return shapes of the inputs of a graph along each free side: at the first size, and longer.

    The second one is no multiple of what both sizes are: a network that pads may mask the padding
    there. The other sides stay as they are, and a free batch is 1, so that tensors of all windows
    stay small.
    """
    names = list_names(graph.inputs)
    shapes = {name: sized.shapes[name] for name in names if name in sized.data}
    pairs = set[tuple[int, int]]()
    for name, shape in shapes.items():
        others = other.shapes[name]
        sides = zip(shape[1:], others[1:], strict=True)
        pairs.update(pair for pair in sides if pair[0] != pair[1])
    listed = []
    for pair in sorted(pairs):
        unit = math.gcd(*pair)
        lengths = [pair[0], pair[0] + unit - 1]
        lengths += [length // unit * unit + pair[0] for length in _LONGER]
        listed.append([_extend_shapes(shapes, other.shapes, pair, length) for length in lengths])
    return listed


def _extend_shapes(
    shapes: Shapes,
    others: Shapes,
    pair: tuple[int, int],
    length: int,
) -> Shapes:
    """Return shapes whose sides that differ by that pair have another length."""
    extended = {}
    for name, shape in shapes.items():
        extended[name] = _extend_shape(shape, others[name], pair, length)
    return extended


def _extend_shape(
    shape: Shape,
    other: Shape,
    pair: tuple[int, int],
    length: int,
) -> Shape:
    batch = shape[0] if shape[0] == other[0] else 1
    sides = zip(shape[1:], other[1:], strict=True)
    return batch, *(length if both == pair else both[0] for both in sides)


def grow_evenly(terms: Sequence[Tensor]) -> bool:
    """Return whether constants at three sizes consist of equal parts, such as windows.

    The longer ones have the elements of the first one, each as often as their length tells from the
    first two: a part more for each window more.
    """
    counted = [_count_values(term) for term in terms]
    values, counts = zip(*counted, strict=True)
    if not all(torch.equal(values[0], other) for other in values[1:]):
        return False
    lengths = [term.numel() for term in terms]
    steps = [b - a for a, b in pairwise(lengths)]
    more = [b - a for a, b in pairwise(counts)]
    first_growth = more[0] * steps[1]
    second_growth = more[1] * steps[0]
    return torch.equal(first_growth, second_growth)


def _count_values(term: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers of a tensor, rounded, in ascending order, and how often each occurs."""
    few = _count_few_values(term) if term.numel() else None
    numbers, counts = term.unique(return_counts=True) if few is None else few
    rounded = (numbers.double().clamp(-_ANY_MASK, _ANY_MASK) * 1e5).round()
    values, place = rounded.unique(return_inverse=True)
    sums = torch.zeros_like(values, dtype=torch.int64)
    return values, sums.index_add(0, place, counts)


def _count_few_values(term: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return what `unique` does, without its sort, of a mask; None of a tensor of many numbers."""
    numbers = []
    counts = []
    lowest = term.amin()
    for _ in range(_FEW_VALUES):
        numbers.append(lowest)
        counts.append((term == lowest).sum())
        higher = term > lowest
        if not higher.any():
            break
        lowest = term.where(higher, torch.inf).amin()
    if sum(map(int, counts)) < term.numel():
        return None
    return torch.stack(numbers), torch.stack(counts)


def _find_varying_elements(
    node: ir.Node,
    sized: Sized,
    other: Sized,
    varying: dict[str, Tensor],
) -> list[Tensor]:
    """Return for each result of a node which of its elements depend on the size."""
    if node.op_type in ("Shape", "Size") and node.domain == "":
        return [_find_differing_lengths(node, sized, other)]
    if _counts_elements(node, sized) != _counts_elements(node, other):
        return [torch.tensor(True)] * len(node.outputs)
    read = find_reads(node) if graphs_of(node) else iter(node.inputs)
    if varying.keys().isdisjoint(list_names(read)):
        return []
    source = node.inputs[0] if node.inputs else None
    if node.op_type in _SHAPED and (source is None or str(source.name) not in varying):
        return []
    moved = _move_elements(node, sized, varying)
    return moved or [torch.tensor(True)] * len(node.outputs)


def _counts_elements(node: ir.Node, sized: Sized) -> object:
    """Return how many constants a node may add up to one, if it does: ones become their number."""
    if node.domain:
        return None
    shapes = [sized.shapes.get(name, ()) for name in list_names(node.inputs)]
    if node.op_type in _COUNTING:
        return shapes
    if not node.op_type.startswith("Reduce") or node.op_type in ("ReduceMax", "ReduceMin"):
        return None
    results = math.prod(sized.shapes.get(str(node.outputs[0].name), ()))
    return math.prod(shapes[0]) // max(results, 1)


def _find_differing_lengths(node: ir.Node, sized: Sized, other: Sized) -> Tensor:
    name = ""
    if node.inputs[0] is not None:
        name = str(node.inputs[0].name)
    shape = sized.shapes.get(name)
    other_shape = other.shapes.get(name)
    if shape is None or other_shape is None or len(shape) != len(other_shape):
        return torch.tensor(True)
    differing = torch.tensor(shape) != torch.tensor(other_shape)
    if node.op_type == "Size":
        return differing.any()
    start = node.attributes.get("start")
    end = node.attributes.get("end")
    first = None if start is None else start.as_int()
    last = None if end is None else end.as_int()
    return differing[first:last]


def _move_elements(node: ir.Node, sized: Sized, varying: dict[str, Tensor]) -> list[Tensor]:
    """Return what `_find_varying_elements` does for a node that only moves elements, else []."""
    rule = rule_of(node)
    if rule is None or rule.kind is not Kind.MOVES or rule.move is None:
        return []
    outs = [sized.shapes.get(str(value.name)) for value in node.outputs]
    if any(out is None or math.prod(out) > _MOST_LENGTHS for out in outs):
        return []
    moving = rule.moved or range(len(node.inputs))
    parts: list[Tensor | None] = []
    for at, value in enumerate(node.inputs):
        name = "" if value is None else str(value.name)
        if value is None or (at not in moving and node.op_type in _SHAPED):
            parts.append(None)
        elif at in moving:
            elements = varying.get(name, torch.tensor(False))
            shape = sized.shapes[name]
            parts.append(elements.expand(shape).clone())
        elif name in varying or (fixed := ir.convenience.get_const_tensor(value)) is None:
            return []
        else:
            array = np.array(fixed.numpy())
            parts.append(torch.from_numpy(array))
    shapes = [out for out in outs if out is not None]
    return rule.move(node, parts, shapes)
