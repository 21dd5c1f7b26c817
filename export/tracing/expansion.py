"""Replaces calls of repeated modules by copies of their graphs, which share equal values."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    DeduplicateInitializersPass,
    NameFixPass,
    RemoveUnusedNodesPass,
)

from .repeats import DOMAIN, Call
from .tidy import SCOPES
from .weights import settle_weights


@dataclass(frozen=True)
class Template:
    """The graph of a repeated module, to be copied.

    Attributes:
        model: The graph; its inputs are those of the module, followed by its weights.
        weights: Names of the weights in the module, in the order of those inputs.
    """

    model: ir.Model
    weights: tuple[str, ...]


def free_weights(model: ir.Model, call: Call) -> Template:
    """Return the raw graph of a call as a template: its tensors become inputs, in place."""
    graph = model.graph
    owned = [name for name in _tensors(call) if name in graph.initializers]
    for name in owned:
        value = graph.initializers.pop(name)
        value.const_value = None
        graph.inputs.append(value)
    return Template(model, tuple(owned))


def expand(model: ir.Model, calls: Mapping[str, Call], templates: Mapping[str, Template]) -> None:
    """Replace every call by a copy of its template, and merge equal nodes, in place.

    Args:
        model: A graph with calls, optimized.
        calls: Name of a call -> the call.
        templates: Name of a call -> its template, optimized.
    """
    constants: dict[ir.Value, ir.Value] = {}
    for node in list(model.graph):
        if node.domain == DOMAIN:
            call, template = calls[node.op_type], templates[node.op_type]
            model.opset_imports.update(template.model.opset_imports)
            _replace(model.graph, node, call, template, constants)
    del model.opset_imports[DOMAIN]
    DeduplicateInitializersPass()(model)
    _merge_sizes(model.graph)
    CommonSubexpressionEliminationPass()(model)
    settle_weights(model)
    RemoveUnusedNodesPass()(model)
    NameFixPass()(model)


def _replace(
    graph: ir.Graph,
    node: ir.Node,
    call: Call,
    template: Template,
    constants: dict[ir.Value, ir.Value],
) -> None:
    """Replace a call by a copy of its template.

    Args:
        graph: The graph of the call.
        node: The node of the call.
        call: The call.
        template: Its template.
        constants: Initializer of a template -> the constant that all copies share.
    """
    source, tensors = template.model.graph, _tensors(call)
    weights = [_constant(graph, f"{call.path}.{name}", tensors[name]) for name in template.weights]
    arguments = [value for value in node.inputs if value is not None]
    values = dict(zip(source.inputs, [*arguments, *weights], strict=True))
    for name, value in source.initializers.items():
        if value not in constants:
            assert value.const_value is not None
            free = _free_name(graph, f"{call.path}.{name}")
            constants[value] = _constant(graph, free, value.const_value)
        values[value] = constants[value]
    copies = []
    for original in source:
        copy = ir.Node(
            original.domain,
            original.op_type,
            [None if value is None else values[value] for value in original.inputs],
            original.attributes.values(),
            num_outputs=len(original.outputs),
            metadata_props=_scoped(original.metadata_props, call.path),
        )
        values.update(zip(original.outputs, copy.outputs, strict=True))
        copies.append(copy)
    results = [values[value] for value in source.outputs]
    ir.convenience.replace_nodes_and_values(graph, node, [node], copies, node.outputs, results)


def _tensors(call: Call) -> dict[str, ir.TensorProtocol]:
    """Return the parameters and buffers of a repeated module, by their names in the module."""
    owned = [*call.module.named_parameters(), *call.module.named_buffers()]
    return {name: ir.Tensor(tensor.detach().numpy(), name=name) for name, tensor in owned}


def _constant(graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    """Return the initializer of that name; create it if there is none yet."""
    if name not in graph.initializers:
        kind, shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.numpy().shape)
        value = ir.Value(name=name, type=kind, shape=shape, const_value=tensor)
        graph.register_initializer(value)
    return graph.initializers[name]


def _free_name(graph: ir.Graph, wanted: str) -> str:
    names = (wanted, *(f"{wanted}_{number}" for number in range(2, len(graph.initializers) + 3)))
    return next(name for name in names if name not in graph.initializers)


def _scoped(properties: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the property with the modules that a node comes from, by paths in the network."""
    if SCOPES not in properties:
        return {}
    inner = ast.literal_eval(properties[SCOPES])
    return {SCOPES: repr([f"{path}.{scope}" if scope else "" for scope in inner])}


def _merge_sizes(graph: ir.Graph) -> None:
    """Read each size that several values have from the first of them, in place.

    Each copy reads sizes from its own inputs. The symbols in the shapes of values of the traced
    network show which sizes are equal. Values inside of copies have no shapes.
    """
    first: dict[tuple[str, ...], ir.Value] = {}
    for node in list(graph):
        if node.op_type != "Shape" or node.domain:
            continue
        sizes = _sizes_read(node)
        if sizes is not None:
            kept = first.setdefault(sizes, node.outputs[0])
            if kept is not node.outputs[0]:
                ir.convenience.replace_all_uses_with(node.outputs[0], kept)


def _sizes_read(node: ir.Node) -> tuple[str, ...] | None:
    """Return the sizes that a Shape reads, numbers or symbols, or None if they are not known."""
    (value,) = node.inputs
    if value is None or value.shape is None:
        return None
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    place = slice(start.as_int() if start else None, end.as_int() if end else None)
    sizes = [size if isinstance(size, int) else size.value for size in value.shape[place]]
    return None if None in sizes else tuple(map(str, sizes))
