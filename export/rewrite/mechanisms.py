"""Writes the mechanism of a site as nodes: it is traced once for all sites of the same form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx

from ...plugins.domain import DOMAIN
from ...plugins.operators import OPERATORS
from ...plugins.operators.schema import VERSION, node_attributes
from ...plugins.operators.window_cluster.schema import MAX_BLOCK
from ..attention.implementation import implement
from ..attention.mechanism import Mechanism
from ..execute.parts import make_constant
from ..tracing.trace import trace_piece
from .replacement import Shapes
from .site_modules import AnyFound, FoundFreeTokens, FoundMap

_TENSORS = ("relative_position_bias_table", "logit_scale")
"""Tensors of a site that its nodes read, in the order in which they follow its inputs."""
_OUTPUT = "out"
_NO_INPUT = "aten.new_zeros.default"
"""Makes the tensor that stands for an input of an operator that is not used."""
_SEVERAL = 2 * MAX_BLOCK + 1
"""A side of so many places has three blocks, a line of its square even more."""


class _Called(nn.Module):
    """A site without inputs that are omitted; the tensors that it holds are its last inputs."""

    def __init__(self, site: nn.Module, present: Sequence[bool], tensors: Sequence[str]) -> None:
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
    fixed = [_drop_axes(shape, axes) for shape, axes in zip(shapes[0], free, strict=True)]
    own: object = str(node.name)
    if not of_one_site:
        own = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    key = repr((type(site).__name__, form, str(mechanism), own, fixed, free, opset, kind))
    if key not in pieces:
        pieces[key] = _trace_mechanism(
            site, mechanism, shapes[0], free, opset, kind, of_one_site=bool(of_one_site)
        )
    return _copy_nodes(pieces[key], node, {} if of_one_site else tensors)


def _list_tensors(site: AnyFound) -> dict[str, Tensor]:
    tensors = {name: getattr(site, name, None) for name in _TENSORS}
    return {name: tensor.detach() for name, tensor in tensors.items() if tensor is not None}


def _find_free_axes(sides: tuple[tuple[int, ...] | None, ...]) -> tuple[int, ...]:
    """Return the axes whose lengths differ between sizes."""
    first = sides[0]
    if first is None:
        return ()
    free: dict[int, None] = {}
    for shape in sides:
        if shape is not None:
            differing = [axis for axis in range(len(first)) if shape[axis] != first[axis]]
            free.update(dict.fromkeys(differing))
    return tuple(sorted(free))


def _drop_axes(shape: tuple[int, ...] | None, axes: Sequence[int]) -> list[int] | None:
    if shape is None:
        return None
    return [length for axis, length in enumerate(shape) if axis not in axes]


def _enlarge_shapes(
    site: AnyFound, shapes: Shapes, free: Sequence[Sequence[int]]
) -> Sequence[tuple[int, ...] | None]:
    """Return shapes to trace with: free maps and lists have several blocks of any mechanism.

    PyTorch takes the number of blocks as fixed if it is 1.
    """

    def longer(length: int, axis: int, place: int, fewest: int = _SEVERAL) -> int:
        if axis in free[place]:
            return length * -(-fewest // length)
        return length

    if isinstance(site, FoundMap) and shapes[0] is not None:
        return [tuple(longer(n, a, 0) if a in (1, 2) else n for a, n in enumerate(shapes[0]))]
    if not isinstance(site, FoundFreeTokens):
        return shapes
    q, k, v, sides, bias = shapes
    assert q is not None
    assert k is not None
    assert v is not None
    if sides is not None:
        sides = longer(sides[0], 0, 3), longer(sides[1], 1, 3)
        queries = math.prod(sides) + (site.geometry.before or (0, 0))[0]
    else:
        queries = longer(q[2], 2, 0, _SEVERAL**2)
    keys = queries
    if site.geometry.apart:
        keys = longer(k[2], 2, 1, _SEVERAL**2)
    if bias is not None:
        one, two = (bias[at] if bias[at] == 1 else n for at, n in ((2, queries), (3, keys)))
        bias = (*bias[:2], one, two)
    return [(*q[:2], queries, q[3]), (*k[:2], keys, k[3]), (*v[:2], keys, v[3]), sides, bias]


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
    dtype = {10: torch.float16, 11: torch.float64}.get(kind, torch.float32)
    before = site.implementation
    computed: Any = implement(mechanism, site, "operator")
    site.implementation = computed
    try:
        module: nn.Module = site
        sizes = _enlarge_shapes(site, shapes, free)
        inputs = [torch.zeros(shape, dtype=dtype) for shape in sizes if shape is not None]
        axes = [axis for axis, shape in zip(free, shapes, strict=True) if shape is not None]
        tensors = {} if of_one_site else _list_tensors(site)
        inputs = [*inputs, *tensors.values()]
        axes = [*axes, *((),) * len(tensors)]
        names = [f"in_{at}" for at in range(len(inputs))]
        dynamic = tuple(dict.fromkeys(a, Dim.DYNAMIC) for a in axes) if any(axes) else None
        if tensors or None in shapes:
            module = _Called(site, [shape is not None for shape in shapes], list(tensors))
        single = None if of_one_site else _write_single_node(module, inputs, names, _OUTPUT, opset)
        return single or trace_piece(module, tuple(inputs), dynamic, opset, names, _OUTPUT)
    finally:
        site.implementation = before


def _copy_nodes(
    piece: onnx.ModelProto, node: ir.Node, tensors: Mapping[str, Tensor]
) -> list[ir.Node]:
    """Return the nodes of a traced mechanism between the values of the node of a site."""
    model = ir.from_proto(piece)
    prefix = f"{node.outputs[0].name}/"
    inputs_of_site = [value for value in node.inputs if value is not None]
    values: dict[ir.Value, ir.Value] = {}
    for ir_value in model.graph.initializers.values():
        values[ir_value] = make_constant(prefix + str(ir_value.name), ir_value.const_value)
    inputs = list(model.graph.inputs)
    values.update(zip(inputs, inputs_of_site, strict=False))
    for value, (name, tensor) in zip(inputs[len(inputs_of_site) :], tensors.items(), strict=False):
        values[value] = make_constant(prefix + name, ir.tensor(tensor.numpy()))
    copies = []
    uses = 0
    for inner in model.graph:
        outputs = []
        for ir_value in inner.outputs:
            is_result = ir_value is model.graph.outputs[0]
            values[ir_value] = ir.Value(
                name=node.outputs[0].name if is_result else prefix + str(ir_value.name)
            )
            outputs.append(values[ir_value])
        name = prefix + str(inner.name)
        if inner.domain == DOMAIN:
            uses += 1
            name = str(node.name) if uses == 1 else f"{node.name}#{uses}"
        inner_inputs = [None if ir_value is None else values[ir_value] for ir_value in inner.inputs]
        attributes = list(inner.attributes.values())
        copies.append(
            ir.Node(
                inner.domain, inner.op_type, inner_inputs, attributes, outputs=outputs, name=name
            )
        )
    return copies


def _write_single_node(
    module: nn.Module, examples: Sequence[Tensor], names: Sequence[str], output: str, opset: int
) -> onnx.ModelProto | None:
    """Return a module as a model of one node of nystra; None if it computes anything else.

    Args:
        module: A module with one result.
        examples: Inputs to run it with; nothing is computed.
        names: Names of the inputs.
        output: Name of the result.
        opset: Version of the default domain.
    """
    with torch.no_grad():
        graph = make_fx(module, tracing_mode="fake")(*examples).graph
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    own = [node for node in nodes if str(node.target).startswith(f"{DOMAIN}.")]
    zeros = [node for node in nodes if str(node.target) == _NO_INPUT and node.args[1] == [1, 1]]
    result = next(iter(graph.find_nodes(op="output"))).args[0]
    if len(own) != 1 or len(own) + len(zeros) != len(nodes) or result is not own[0]:
        return None
    input_names = dict(zip(graph.find_nodes(op="placeholder"), names, strict=True))
    input_names |= {node: f"none_{at}" for at, node in enumerate(zeros)}
    folder = own[0].target._schema.name.partition("::")[2]
    operator = next(name for name, folder_of_row in OPERATORS.items() if folder_of_row == folder)
    arguments = [argument.name for argument in own[0].target._schema.arguments]
    values = dict(zip(arguments, own[0].args, strict=False)) | own[0].kwargs
    inputs = [input_names[value] for value in values.values() if value in input_names]
    rest: dict[str, Any] = {k: v for k, v in values.items() if not isinstance(v, torch.fx.Node)}
    kind = helper.np_dtype_to_tensor_dtype(examples[0].numpy().dtype)
    none = np.zeros((1, 1), examples[0].numpy().dtype)
    attributes: dict[str, Any] = {**node_attributes(operator, **rest)}
    node = helper.make_node(operator, inputs, [output], folder, None, DOMAIN, **attributes)
    model: onnx.ModelProto = helper.make_model(
        helper.make_graph(
            [node],
            "piece",
            [helper.make_tensor_value_info(name, kind, None) for name in names],
            [helper.make_tensor_value_info(output, kind, None)],
            [numpy_helper.from_array(none, input_names[node]) for node in zeros],
        ),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, VERSION)],
    )
    return model
