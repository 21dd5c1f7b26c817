"""Inputs and outputs of attention as values of a file, whose matrix products may have many axes.

Nodes of a traced graph of modules are all values; of a file's graph those are not that an operator
of the file is made of (``meta["cut"]`` is False).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .map_form import NotOnMap, is_symbolic
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
"""Operators that keep the order of all elements if they keep their number."""


def is_value(node: fx.Node) -> bool:
    """Whether a node is a value of the file, so that a cut may begin or end there."""
    return bool(node.meta.get("cut", True))


def source_of(run: Provenance, node: fx.Node) -> fx.Node:
    """Return the value of the file of which a stack of matrices is a reshape.

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
    """Return matrices (g, rows, columns), or a single one, as nodes that are values of the file.

    Raises:
        NotOnMap: As `source_of`.
    """
    source = source_of(run, node)
    if source is node:
        return node
    shape = _shape(run, node)
    leading = [-1] if len(shape) > 2 else []
    return graph.graph.call_function(torch.reshape, (source, [*leading, *shape[-2:]]))


def result_of(run: Provenance, core: Core) -> fx.Node:
    """Return the value of the file that equals an attention's result; the first, if several do.

    Raises:
        NotOnMap: It is none.
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
        NotOnMap: Lengths of these axes depend on the image size and are not the queries'.
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
