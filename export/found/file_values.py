"""Inputs and outputs of attention as values of an ONNX file.

Matrix products of a file may have many axes. Every node of a traced module is a value. In the graph
of a file one operator may be several nodes: the inner nodes are no values of the file and have
``meta["cut"]`` False.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ..rewrite.site_modules import NotOnMap
from .map_form import is_symbolic
from .rules import Provenance
from .values import Core, Value

aten = torch.ops.aten

_IN_ORDER = (
    aten.reshape.default,
    aten.expand.default,
    aten.clone.default,
    aten.alias.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
)
"""Operators that keep the order of all elements if the number of elements stays the same."""


def is_value(node: fx.Node) -> bool:
    """Return whether a node is a value of the file. Only there a replacement may begin or end."""
    return bool(node.meta.get("cut", True))


def source_of(run: Provenance, node: fx.Node) -> fx.Node:
    """Return the value of the file that a stack of matrices is reshaped from.

    Raises:
        NotOnMap: There is no such value, or its matrices are repeated.
    """
    source = node
    while not is_value(source):
        before = source.args[0]
        if source.target not in _IN_ORDER or not isinstance(before, fx.Node):
            raise NotOnMap("its queries, keys and values are not values of the file")
        source = before
    if not _same_matrices(run, source, node):
        raise NotOnMap("its queries, keys and values are not values of the file")
    return source


def stacked(graph: fx.GraphModule, run: Provenance, node: fx.Node) -> fx.Node:
    """Return matrices (g, rows, columns) or (rows, columns), reshaped from a value of the file.

    Raises:
        NotOnMap: As in `source_of`.
    """
    source = source_of(run, node)
    if source is node:
        return node
    shape = _shape(run, node)
    leading = [-1] if len(shape) > 2 else []
    return graph.graph.call_function(torch.reshape, (source, [*leading, *shape[-2:]]))


def result_of(run: Provenance, core: Core) -> fx.Node:
    """Return the first value of the file that equals the result of an attention.

    Raises:
        NotOnMap: No value of the file equals it.
    """
    node = core.out
    if not isinstance(run.values[node], (list, tuple)):
        while not is_value(node):
            users = list(node.users)
            if len(users) != 1 or users[0].target not in _IN_ORDER:
                raise NotOnMap("its result is not a value of the file")
            (node,) = users
        if not _same_matrices(run, node, core.out):
            raise NotOnMap("its result is not a value of the file")
        return node
    for user in node.users:
        if user.target is operator.getitem and user.args[1] == 0:
            return user
    raise NotOnMap("its result is not used")


def unstacked(
    graph: fx.GraphModule, run: Provenance, core: Core, out: fx.Node, goal: fx.Node
) -> fx.Node:
    """Return a result (g, N, e) with the leading axes of the corresponding value of the file.

    Raises:
        NotOnMap: The lengths of these axes depend on the image size and differ from the queries'.
    """
    if goal is core.out:
        return out
    shape = _shape(run, goal)
    leading: list[Any] = list(shape[:-2])
    if is_symbolic(graph):
        source = source_of(run, core.q)
        if _shape(run, source)[:-2] != shape[:-2]:
            raise NotOnMap("its result has other axes than its queries")
        leading = [
            graph.graph.call_function(aten.sym_size.int, (source, axis))
            for axis in range(len(leading))
        ]
    return graph.graph.call_function(torch.reshape, (out, [*leading, *shape[-2:]]))


def _same_matrices(run: Provenance, first: fx.Node, second: fx.Node) -> bool:
    one, other = _shape(run, first), _shape(run, second)
    return one[-2:] == other[-2:] and one.numel() == other.numel()


def _shape(run: Provenance, node: fx.Node) -> torch.Size:
    value = run.values[node]
    if not isinstance(value, Value):
        raise NotOnMap(f"{node.name} is no tensor")
    return value.data.shape
