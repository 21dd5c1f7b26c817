"""Replaces calls of a part of a graph by copies of the part, with other weights."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
from torch import Tensor, nn

from ..execute.parts import make_constant
from .marks import DOMAIN, ENTER, LEAVE
from .tidy import SCOPES


@dataclass(frozen=True)
class Copied:
    """The part of a graph that a call repeats, and the weights of the call.

    Attributes:
        part: The number of the part between two marks.
        weights: Path of a tensor of that part -> path of the tensor that the copy uses.
        paths: Path of a module of that part -> path of the module of the copy.
    """

    part: str
    weights: Mapping[str, str]
    paths: Mapping[str, str]


class LostPartError(Exception):
    """The nodes of a part that calls are copies of were removed: nothing reads its result."""


def expand_calls(model: ir.Model, copied: Mapping[str, Copied], network: nn.Module) -> None:
    """Replace every call by a copy of its part, and remove the marks, in place.

    Args:
        model: A graph with marks and calls, not optimized.
        copied: Name of a call -> its part and its weights.
        network: The network with the weights.

    Raises:
        LostPartError: A part is not in the graph.
    """
    graph = model.graph
    marks: dict[str, ir.Node] = {}
    tensors = {
        **dict(network.named_parameters(remove_duplicate=False)),
        **dict(network.named_buffers(remove_duplicate=False)),
    }
    for node in list(graph):
        if node.domain != DOMAIN:
            continue
        if node.op_type in copied:
            call = copied[node.op_type]
            enter, leave = (marks.get(f"{name}_{call.part}") for name in (ENTER, LEAVE))
            if enter is None or leave is None:
                raise LostPartError(call.part)
            _put_copy(graph, node, call, enter, leave, tensors)
        else:
            marks[node.op_type] = node
    for node in marks.values():
        ir.convenience.replace_nodes_and_values(
            graph, node, [node], [], node.outputs, _values(node)
        )
    model.opset_imports.pop(DOMAIN, None)


def _put_copy(
    graph: ir.Graph,
    node: ir.Node,
    call: Copied,
    enter: ir.Node,
    leave: ir.Node,
    tensors: Mapping[str, Tensor],
) -> None:
    """Replace a call by a copy of the nodes between two marks."""
    pairs = zip(enter.outputs, _values(node), strict=True)
    values = dict(pairs)
    for name, other in call.weights.items():
        if name in graph.initializers and name != other:
            values[graph.initializers[name]] = _weight(graph, other, tensors)
    copies = []
    for original in graph:
        if original is leave:
            break
        if original is enter or not any(value in values for value in _values(original)):
            continue
        if original.domain == DOMAIN:  # a mark of a part inside this part
            inner = (values.get(value, value) for value in _values(original))
            values.update(zip(original.outputs, inner, strict=True))
            continue
        copy = ir.Node(
            original.domain,
            original.op_type,
            [values.get(value, value) if value else None for value in original.inputs],
            original.attributes.values(),
            overload=original.overload,
            num_outputs=len(original.outputs),
            metadata_props=_move(original.metadata_props, call.paths),
        )
        for value, new in zip(original.outputs, copy.outputs, strict=True):
            new.type, new.shape = value.type, value.shape
            values[value] = new
        copies.append(copy)
    results = [values.get(value, value) for value in _values(leave)]
    outputs = node.outputs
    ir.convenience.replace_nodes_and_values(graph, node, [node], copies, outputs, results)


def _values(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.inputs if value is not None]


def _weight(graph: ir.Graph, name: str, tensors: Mapping[str, Tensor]) -> ir.Value:
    """Return the initializer of a tensor of the network; create it if there is none yet."""
    if name not in graph.initializers:
        array = tensors[name].detach().numpy()
        tensor = ir.Tensor(array, name=name)
        graph.register_initializer(make_constant(name, tensor))
    return graph.initializers[name]


def _move(properties: Mapping[str, str], paths: Mapping[str, str]) -> dict[str, str]:
    """Return the property with the modules that a node comes from, as those of the copy."""
    if SCOPES not in properties:
        return {}
    scopes = ast.literal_eval(properties[SCOPES])
    moved = [paths.get(scope, scope) for scope in scopes]
    return {SCOPES: repr(moved)}


def merge_sizes(graph: ir.Graph) -> None:
    """Read each size that several values have from the first of them, in place.

    Each copy reads sizes from its own inputs. The symbols in the shapes show which are equal.
    """
    first: dict[tuple[str, ...], ir.Value] = {}
    for node in list(graph):
        value = node.inputs[0] if node.op_type == "Shape" and not node.domain else None
        if value is None or value.shape is None:
            continue
        start = node.attributes.get("start")
        end = node.attributes.get("end")
        at = start.as_int() if start else None
        last = end.as_int() if end else None
        sides = value.shape[at:last]
        sizes = tuple(str(side if isinstance(side, int) else side.value) for side in sides)
        shared = first.setdefault(sizes, node.outputs[0])
        if shared is not node.outputs[0] and "None" not in sizes:
            ir.convenience.replace_all_uses_with(node.outputs[0], shared)
