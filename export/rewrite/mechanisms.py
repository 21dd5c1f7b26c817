"""Writes the mechanism of a site as nodes: it is traced once for all sites of the same form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch import Tensor, nn

from ...core.ports.port import Shape
from ...plugins.operators.window_cluster.schema import MAX_BLOCK
from ..attention.implementation import implement
from ..attention.mechanism import Mechanism
from ..tracing.pieces import copy_piece, trace_attention
from .replacement import Shapes
from .site_modules import AnyFound, FoundFreeTokens, FoundMap

_TENSORS = ("relative_position_bias_table", "logit_scale")
"""Tensors of a site that its nodes read, in the order in which they follow its inputs."""
_SEVERAL = 2 * MAX_BLOCK + 1
"""A side of so many places has three blocks, a line of its square even more."""


class _Called(nn.Module):
    """A site without inputs that are omitted; the tensors that it holds are its last inputs."""

    def __init__(
        self,
        site: nn.Module,
        present: Sequence[bool],
        tensors: Sequence[str],
    ) -> None:
        super().__init__()
        self.site = site
        self.present = present
        self.tensors = tensors

    def forward(self, *inputs: Tensor) -> Any:
        remaining = iter(inputs)
        arguments = tuple(next(remaining) if is_present else None for is_present in self.present)
        tensors = {name: next(remaining) for name in self.tensors}
        return torch.func.functional_call(self.site, tensors, arguments)


def write_mechanism(
    node: ir.Node,
    site: AnyFound,
    mechanism: Mechanism,
    shapes: Sequence[Shapes],
    opset: int,
    kind: int,
    pieces: dict[str, onnx.ModelProto],
) -> list[ir.Node]:
    """Return the nodes that compute a mechanism in place of the node of a site.

    Args:
        node: The node of the site.
        site: Its module.
        mechanism: How it is computed.
        shapes: Shapes of its inputs at each size of the search.
        opset: Opset that the nodes are traced for.
        kind: Type of its values, as ONNX numbers it.
        pieces: Mechanisms traced before; it gets this one.

    Raises:
        ExportError: It cannot be traced.
    """
    of_one_site = mechanism.trained or mechanism.takes_site
    tensors = _list_tensors(site)
    names = ("geometry", "grid", "heads", "scale", "value_dim", "epsilon")
    form = [getattr(site, name, None) for name in names]
    free = [_find_free_axes(sides) for sides in zip(*shapes, strict=True)]
    shapes_and_axes = zip(shapes[0], free, strict=True)
    fixed = [_drop_axes(shape, axes) for shape, axes in shapes_and_axes]
    own: object = str(node.name)
    if not of_one_site:
        own = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    what = (type(site).__name__, form, str(mechanism))
    key = repr((*what, own, fixed, free, opset, kind))
    if key not in pieces:
        pieces[key] = _trace_mechanism(
            site, mechanism, shapes[0], free, opset, kind, of_one_site=bool(of_one_site)
        )
    return copy_piece(pieces[key], node, {} if of_one_site else tensors)


def _list_tensors(site: AnyFound) -> dict[str, Tensor]:
    listed = {}
    for name in _TENSORS:
        tensor = getattr(site, name, None)
        if tensor is not None:
            listed[name] = tensor.detach()
    return listed


def _find_free_axes(sides: tuple[tuple[int, ...] | None, ...]) -> tuple[int, ...]:
    """Return the axes whose lengths differ between sizes."""
    first = sides[0]
    if first is None:
        return ()
    free: dict[int, None] = {}
    for shape in sides:
        if shape is not None:
            axes = range(len(first))
            differing = [axis for axis in axes if shape[axis] != first[axis]]
            free.update(dict.fromkeys(differing))
    return tuple(sorted(free))


def _drop_axes(shape: tuple[int, ...] | None, axes: Sequence[int]) -> list[int] | None:
    if shape is None:
        return None
    return [length for axis, length in enumerate(shape) if axis not in axes]


def _enlarge_shapes(
    site: AnyFound, shapes: Shapes, free: Sequence[Sequence[int]]
) -> Sequence[Shape | None]:
    """Return shapes to trace with: free maps and lists have several blocks of any mechanism.

    PyTorch takes the number of blocks as fixed if it is 1.
    """

    def longer(
        length: int,
        axis: int,
        place: int,
        fewest: int = _SEVERAL,
    ) -> int:
        if axis in free[place]:
            return length * -(-fewest // length)
        return length

    if isinstance(site, FoundMap) and shapes[0] is not None:
        shape = list(shapes[0])
        shape[1] = longer(shape[1], 1, 0)
        shape[2] = longer(shape[2], 2, 0)
        return [tuple(shape)]
    if not isinstance(site, FoundFreeTokens):
        return shapes
    q, k, v, sides, bias = shapes
    assert q is not None
    assert k is not None
    assert v is not None
    if sides is not None:
        rows = longer(sides[0], 0, 3)
        columns = longer(sides[1], 1, 3)
        sides = (rows, columns)
        before = site.geometry.before or (0, 0)
        queries = math.prod(sides) + before[0]
    else:
        queries = longer(q[2], 2, 0, _SEVERAL**2)
    keys = queries
    if site.geometry.separate:
        keys = longer(k[2], 2, 1, _SEVERAL**2)
    if bias is not None:
        rows = bias[2] if bias[2] == 1 else queries
        columns = bias[3] if bias[3] == 1 else keys
        bias = (*bias[:2], rows, columns)
    q = (*q[:2], queries, q[3])
    k = (*k[:2], keys, k[3])
    v = (*v[:2], keys, v[3])
    return [q, k, v, sides, bias]


def _trace_mechanism(
    site: AnyFound,
    mechanism: Mechanism,
    shapes: Shapes,
    free: Sequence[Sequence[int]],
    opset: int,
    kind: int,
    *,
    of_one_site: bool,
) -> onnx.ModelProto:
    dtypes = {10: torch.float16, 11: torch.float64}
    dtype = dtypes.get(kind, torch.float32)
    before = site.implementation
    computed: Any = implement(mechanism, site, "operator")
    site.implementation = computed
    try:
        module: nn.Module = site
        sizes = _enlarge_shapes(site, shapes, free)
        inputs = [torch.zeros(shape, dtype=dtype) for shape in sizes if shape is not None]
        free_axes = zip(free, shapes, strict=True)
        axes = [axis for axis, shape in free_axes if shape is not None]
        tensors = {} if of_one_site else _list_tensors(site)
        inputs = [*inputs, *tensors.values()]
        axes = [*axes, *((),) * len(tensors)]
        if tensors or None in shapes:
            has_input = [shape is not None for shape in shapes]
            module = _Called(site, has_input, list(tensors))
        return trace_attention(module, inputs, axes, opset, has_weights=of_one_site)
    finally:
        site.implementation = before
