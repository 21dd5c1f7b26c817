"""Decomposes single operators of a program, in place of another trace of the whole program."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from ...models.torch_internals import (
    HigherOrderOperator,
    OpOverload,
    make_fx,
    tree_flatten,
    tree_unflatten,
)
from .checked_parts import check_parts, place_of
from .lowering import without_writes
from .pooling import is_pooling_of_any_size, pool
from .size_conditions import record_conditions

Table = Mapping[Any, Callable[..., Any]]
"""Operator -> the function of other operators that it is."""

_COMPOSITE = frozenset(
    re.findall(
        r"\w+",
        "batch_norm to movedim moveaxis swapaxes swapdims numpy_T adjoint matrix_H narrow ravel "
        "positive reshape_as tensor_split hsplit vsplit dsplit flatten unflatten",
    )
)
"""Composite operators without a translation that are in no table: their results may be views."""


def decompose(graph: fx.Graph, table: Table) -> bool:
    """Write the operators of a table as others, in place.

    Args:
        graph: Graph of a program whose nodes have their values.
        table: The decompositions.

    Returns:
        Whether none of the operators is left, and none that changes its inputs.
    """
    done = True
    for node in list(graph.nodes):
        target = node.target
        if node.op == "get_attr" or isinstance(target, HigherOrderOperator):
            return False  # a graph within the graph
        if isinstance(target, OpOverload):
            parts = pool if is_pooling_of_any_size(node) else table.get(target)
            if parts is None and target._schema.name.partition("::")[2] in _COMPOSITE:
                parts = target.decompose
            written = parts is None or write_parts(graph, node, parts, table)
            done = done and written and not target._schema.is_mutable
    return done


def write_parts(
    graph: fx.Graph,
    node: fx.Node,
    parts: Callable[..., Any],
    table: Table,
    *,
    keep: bool = False,
) -> bool:
    """Write the operators of a function instead of a node; return whether that was done.

    Args:
        graph: The graph, whose nodes have their values.
        node: The node.
        parts: The function.
        table: What operators that it calls are written as.
        keep: Whether operators that it calls stay that are made of others.
    """
    leaves, spec = tree_flatten((node.args, node.kwargs))
    numbered = enumerate(leaves)
    places = [place for place, leaf in numbered if isinstance(leaf, fx.Node)]
    sources = [leaves[place] for place in places]
    values = [source.meta.get("val") for source in sources]
    modes = [value.fake_mode for value in values if hasattr(value, "fake_mode")]
    if not modes:
        return False

    def bind(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            arguments = list(leaves)
            for place, value in zip(places, values, strict=True):
                arguments[place] = value
            args, kwargs = tree_unflatten(arguments, spec)
            return function(*args, **kwargs)

        return run

    traced = make_fx(bind(parts), decomposition_table=dict(table), pre_dispatch=keep)
    try:
        decisions = record_conditions(place_of(node))
        with torch.no_grad(), modes[0], decisions as decided:
            module = traced(*values)
    except Exception:  # noqa: BLE001 - it may need more than values: all is decomposed
        return False
    supported = {"placeholder", "call_function", "output"}
    operations = {part.op for part in module.graph.nodes}
    if not operations <= supported or not without_writes(module.graph):
        return False
    if callable(node.target):
        check_parts(node, bind(node.target), module, values, decided)
    placeholders = module.graph.find_nodes(op="placeholder")
    copies = dict(zip(placeholders, sources, strict=True))
    entries = node.meta.items()
    meta = {key: value for key, value in entries if key != "val"}
    with graph.inserting_before(node):
        for one in module.graph.nodes:
            if one.op == "call_function":
                arguments = (one.args, one.kwargs)
                args, kwargs = fx.map_arg(arguments, copies.__getitem__)
                copies[one] = graph.call_function(one.target, args, kwargs)
                copies[one].meta = meta | {"val": one.meta["val"]}
    results: Any = module.graph.output_node().args[0]
    return _replace(graph, node, fx.map_arg(results, copies.__getitem__))


def _replace(graph: fx.Graph, node: fx.Node, results: Any) -> bool:
    """Replace a node by its result, or the items that are taken of it by its results."""
    users = list(node.users)
    if isinstance(node.meta.get("val"), Tensor):
        node.replace_all_uses_with(results)
    elif all(user.target is operator.getitem for user in users):
        for user in users:
            place: Any = user.args[1]
            user.replace_all_uses_with(results[place])
            graph.erase_node(user)
    else:
        return False
    graph.erase_node(node)
    return True
