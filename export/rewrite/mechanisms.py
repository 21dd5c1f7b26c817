"""Writes the mechanism of a site as nodes: it is traced once for all sites of the same form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export import Dim

from ...plugins.domain import DOMAIN
from ..attention.implementation import implement
from ..attention.mechanism import Mechanism
from ..tracing.trace import trace_piece
from .replacement import Shapes
from .single_node import single_node
from .site_modules import AnyFound, FoundWindows

_TABLE = "relative_position_bias_table"
_OUTPUT = "out"
_FORM = ("geometry", "grid", "heads", "head_dim", "value_dim", "scale")
_OPSETS = (18, 20)
"""The oldest and newest opsets that nodes are traced for; those of others have the same meaning."""


class _WithTable(nn.Module):
    """A site whose table of position biases is an input."""

    def __init__(self, site: FoundWindows) -> None:
        super().__init__()
        self.site = site

    def forward(self, packed: Tensor, table: Tensor) -> Any:
        return torch.func.functional_call(self.site, {_TABLE: table}, (packed,))


def traced_opset(opset: int) -> int:
    """Return the opset that nodes are traced for, of a model of that opset."""
    return min(max(opset, _OPSETS[0]), _OPSETS[1])


def mechanism_nodes(
    node: ir.Node,
    site: AnyFound,
    mechanism: Mechanism,
    shapes: Sequence[Shapes],
    opset: int,
    kind: int,
    known: dict[str, onnx.ModelProto],
) -> list[ir.Node]:
    """Return the nodes that compute a mechanism in place of the node of a site.

    Args:
        node: The node of the site.
        site: Its module.
        mechanism: How it is computed.
        shapes: Shapes of its inputs at each size of the search.
        opset: Opset that the nodes are traced for.
        kind: Type of its values, as ONNX numbers it.
        known: Mechanisms traced before; it gets this one.

    Raises:
        ExportError: It cannot be traced.
    """
    table = getattr(site, _TABLE, None)
    apart = mechanism.trained or mechanism.takes_site
    form = [
        getattr(site, name, None) for name in ("geometry", "grid", "heads", "scale", "value_dim")
    ]
    free = [_free(sides) for sides in zip(*shapes, strict=True)]
    fixed = [None if one is None else [n for a, n in enumerate(one) if a not in axes]
             for one, axes in zip(shapes[0], free, strict=True)]  # fmt: skip
    own = str(node.name) if apart else (None if table is None else tuple(table.shape))
    key = repr((type(site).__name__, form, str(mechanism), own, fixed, free, opset, kind))
    if key not in known:
        known[key] = _traced(site, mechanism, shapes[0], free, opset, kind, apart=bool(apart))
    return _copied(known[key], node, None if apart else table, kind)


def _free(sides: tuple[tuple[int, ...] | None, ...]) -> tuple[int, ...]:
    """Return the axes whose lengths differ between sizes."""
    first = sides[0]
    if first is None:
        return ()
    return tuple(
        axis
        for axis in range(len(first))
        if any(s is not None and s[axis] != first[axis] for s in sides)
    )


def _traced(
    site: AnyFound,
    mechanism: Mechanism,
    shapes: Shapes,
    free: Sequence[Sequence[int]],
    opset: int,
    kind: int,
    *,
    apart: bool,
) -> onnx.ModelProto:
    dtype = {10: torch.float16, 11: torch.float64}.get(kind, torch.float32)
    before = site.implementation
    computed: Any = implement(mechanism, site, "operator")
    site.implementation = computed
    try:
        module: nn.Module = site
        given = [torch.zeros(shape, dtype=dtype) for shape in shapes if shape is not None]
        axes = [axis for axis, shape in zip(free, shapes, strict=True) if shape is not None]
        table = getattr(site, _TABLE, None)
        if table is not None and not apart and isinstance(site, FoundWindows):
            module, given, axes = _WithTable(site), [*given, table.detach()], [*axes, ()]
        names = [f"in_{at}" for at in range(len(given))]
        dynamic = None
        if any(axes):
            dynamic = tuple(dict.fromkeys(a, Dim.DYNAMIC) for a in axes)
        single = None if apart else single_node(module, given, names, _OUTPUT, opset)
        return single or trace_piece(module, tuple(given), dynamic, opset, names, _OUTPUT)
    finally:
        site.implementation = before


def _copied(
    piece: onnx.ModelProto, node: ir.Node, table: Tensor | None, kind: int
) -> list[ir.Node]:
    """Return the nodes of a traced mechanism between the values of the node of a site."""
    model, prefix = ir.from_proto(piece), f"{node.outputs[0].name}/"
    given = [value for value in node.inputs if value is not None]
    values: dict[ir.Value, ir.Value] = {}
    for held in model.graph.initializers.values():
        values[held] = _constant(prefix + str(held.name), held.const_value)
    inputs = list(model.graph.inputs)
    values.update(zip(inputs, given, strict=False))
    if table is not None:
        array = table.detach().numpy()
        values[inputs[len(given)]] = _constant(prefix + "table", ir.tensor(array))
    copies, uses = [], 0
    for inner in model.graph:
        outputs = []
        for held in inner.outputs:
            is_result = held is model.graph.outputs[0]
            values[held] = ir.Value(
                name=node.outputs[0].name if is_result else prefix + str(held.name)
            )
            outputs.append(values[held])
        name = prefix + str(inner.name)
        if inner.domain == DOMAIN:
            uses += 1
            name = str(node.name) if uses == 1 else f"{node.name}#{uses}"
        taken = [None if held is None else values[held] for held in inner.inputs]
        attributes = list(inner.attributes.values())
        copies.append(
            ir.Node(inner.domain, inner.op_type, taken, attributes, outputs=outputs, name=name)
        )
    return copies


def _constant(name: str, tensor: Any) -> ir.Value:
    value = ir.Value(name=name, shape=ir.Shape(tensor.shape), const_value=tensor)
    value.type = ir.TensorType(tensor.dtype)
    return value
