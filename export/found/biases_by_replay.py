"""Writes the terms added to attention scores as nodes: repeats operators on zero scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from ..rewrite.site_modules import NotOnMap
from .map_form import FREE, is_symbolic
from .rules import Provenance
from .values import Core, Value

aten = torch.ops.aten

Shapes = Mapping[fx.Node, tuple[int, ...]]
_EXPAND = aten.expand.default
_SIZED = (aten.view.default, aten._unsafe_view.default, aten.reshape.default, _EXPAND)
"""Operators that take the sizes of their result as arguments."""


def replayed(
    graph: fx.GraphModule, run: Provenance, core: Core, q: fx.Node, others: Shapes
) -> fx.Node:
    """Return the node of the softmax's input if the product of queries and keys is zero.

    The zeros are created from the number of queries, not from the product, which is removed.

    Args:
        graph: The graph; nodes are added to it.
        run: The search that has run on it.
        core: The attention.
        q: Node of its queries, (g, N, d).
        others: Shapes of the graph's tensors at another image size.

    Raises:
        NotOnMap: The terms cannot be separated from the scores, or their size is unknown.
    """
    call = graph.graph.call_function
    product = core.product
    sizes: list[Any] = list(run.values[product].data.shape)
    if len(sizes) > 2 and is_symbolic(graph):
        sizes[0] = call(aten.sym_size.int, (q, 0))
    zero = call(aten.new_zeros.default, (q, sizes))
    if product.target is aten.baddbmm.default and product.kwargs.get("beta", 1) != 0:
        zero = call(torch.add, (zero, product.args[0]), {"alpha": product.kwargs.get("beta", 1)})
    copies: dict[fx.Node, fx.Node] = {product: zero}
    for node in graph.graph.nodes:
        if node is core.softmax:
            break
        value = run.values.get(node)
        scored = isinstance(value, Value) and value.score is not None
        if scored and node is not product and any(n in copies for n in node.all_input_nodes):
            copies[node] = graph.graph.node_copy(node, lambda n: copies.get(n, n))
            if graph.meta.get(FREE) and node.target in _SIZED and node in others:
                _free(graph, run, node, copies[node], others)
    last = core.softmax.args[0]
    if not isinstance(last, fx.Node) or last not in copies:
        raise NotOnMap("what is added to its scores cannot be separated from them")
    return copies[last]


def _free(
    graph: fx.GraphModule, run: Provenance, node: fx.Node, copy: fx.Node, others: Shapes
) -> None:
    """Make sizes symbolic that are constants in a graph of one size but differ at another size."""
    own, other = tuple(run.values[node].data.shape), others[node]
    if len(own) != len(other):
        raise NotOnMap("its scores have another number of axes at other sizes of the image")
    free = [axis for axis in range(len(own)) if own[axis] != other[axis]]
    sizes: list[Any] = list(own)
    if len(free) == 1 or node.target is _EXPAND:
        sizes = [-1 if axis in free else size for axis, size in enumerate(own)]
    else:
        sources = {axis: _source_of_size(run, node, axis, others) for axis in free}
        unknown = [axis for axis, source in sources.items() if source is None]
        if len(unknown) > 1:
            raise NotOnMap("its scores are cut into several free axes")
        with graph.graph.inserting_before(copy):
            for axis, source in sources.items():
                sizes[axis] = (
                    -1 if source is None else graph.graph.call_function(aten.sym_size.int, source)
                )
    copy.args = (copy.args[0], sizes)


def _source_of_size(
    run: Provenance, node: fx.Node, axis: int, others: Shapes
) -> tuple[fx.Node, int] | None:
    """Return a tensor to which the scores are added, and its axis of the same length."""
    own = tuple(run.values[node].data.shape)
    lengths = (own[axis], others[node][axis])
    sources = (source for user in node.users for source in user.all_input_nodes)
    for source in sources:
        value = run.values.get(source)
        if not isinstance(value, Value) or value.score is not None or source not in others:
            continue
        shape = tuple(value.data.shape)
        at = axis - len(own) + len(shape)
        if at >= 0 and (shape[at], others[source][at]) == lengths:
            return source, at
    return None
