"""Computes values that depend on parameters alone once, such as biases by a small network."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn

from .movement import MOVES, node_name
from .pairs import attribute

_GROWTH = 2
"""Largest size of a computed value, as a multiple of the floating-point tensors it depends on."""


def fold_constants(graph: fx.GraphModule) -> None:
    """Replace nodes that depend on parameters and no input by constants, in place.

    Nodes that only move elements stay. Nodes with a value much larger than its sources stay too.
    """
    sources: dict[fx.Node, frozenset[str]] = {}
    is_moved: dict[fx.Node, bool] = {}
    for node in graph.graph.nodes:
        if node.op == "get_attr" and isinstance(attribute(graph, node.target), Tensor):
            sources[node], is_moved[node] = frozenset([node.target]), True
        elif _is_pure(node) and all(one in sources for one in node.all_input_nodes):
            sources[node] = frozenset().union(*(sources[one] for one in node.all_input_nodes))
            moves = node_name(node) in MOVES
            is_moved[node] = moves and all(is_moved[one] for one in node.all_input_nodes)
    folded: dict[fx.Node, Tensor] = {}
    todo = [
        node for node in sources if not is_moved[node] and any(u not in sources for u in node.users)
    ]
    while todo:
        node = todo.pop()
        if node in folded or is_moved[node]:
            continue
        value = _value(graph, node)
        if value is not None and _is_small(value, [attribute(graph, p) for p in sources[node]]):
            folded[node] = value
        else:
            todo += node.all_input_nodes
    for number, (node, value) in enumerate(folded.items()):
        name = f"folded_{number}"
        graph.register_parameter(name, nn.Parameter(value, requires_grad=False))
        with graph.graph.inserting_before(node):
            constant = graph.graph.get_attr(name)
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _is_pure(node: fx.Node) -> bool:
    """Return whether a node always returns the same values for the same tensors."""
    if node.target is operator.getitem:
        return True
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    is_random = torch.Tag.nondeterministic_seeded in node.target.tags
    return bool(node.all_input_nodes) and not is_random and not node.target._schema.is_mutable


def _value(graph: fx.GraphModule, node: fx.Node) -> Tensor | None:
    """Return the value of a node that depends on constants only, or None if it is no tensor."""
    values: dict[fx.Node, Any] = {}
    todo = [node]
    while todo:
        one = todo[-1]
        missing = [source for source in one.all_input_nodes if source not in values]
        todo += missing
        if missing:
            continue
        todo.pop()
        if one.op == "get_attr":
            values[one] = attribute(graph, str(one.target)).detach()
        else:
            args, kwargs = fx.map_arg((one.args, one.kwargs), values.__getitem__)
            with torch.no_grad():
                values[one] = one.target(*args, **kwargs)  # type: ignore[operator]
    value = values[node]
    return value.contiguous() if isinstance(value, Tensor) else None


def _is_small(value: Tensor, sources: list[Tensor]) -> bool:
    """Return whether a value depends on parameters and is at most `_GROWTH` times as large."""
    made_of = [source for source in sources if source.is_floating_point()]
    if not value.is_floating_point() or not any(isinstance(s, nn.Parameter) for s in made_of):
        return False
    return value.numel() <= _GROWTH * sum(source.numel() for source in made_of)
