"""Lowers a graph of ``torch.export`` to operators that the search supports, without a trace.

PyTorch's ``run_decompositions`` traces again, which takes three times as long as the first trace.
Here in-place writes become copies, and a few composite operators are decomposed. Graphs with other
composite operators are left to PyTorch.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from .movement import MOVES, PADS, names, node_name
from .products import FUSED, PRODUCTS
from .rules import KNOWN, RESIZES
from .scores import SOFTMAXES

aten = torch.ops.aten

_PARTS: dict[Any, Any] = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
}
"""View operator -> the operator that writes a changed view back into its tensor."""

_ALIASES = names(
    "view reshape permute transpose t mT expand expand_as view_as slice select split unbind chunk "
    "squeeze unsqueeze alias detach diagonal narrow flatten unflatten to contiguous movedim "
    "split_with_sizes tensor_split reshape_as unfold as_strided swapaxes moveaxis type_as dropout"
)
"""Operators whose result may share memory with their input."""


def lowered(graph: fx.GraphModule, kept: tuple[str, ...]) -> bool:
    """Lower a graph in place; return whether it worked. If not, the graph must not be used.

    Args:
        graph: Graph from ``torch.export`` whose nodes have their values.
        kept: Prefixes of the names of operators that are not decomposed.
    """
    if not all(_without_write(graph.graph, node) for node in list(graph.graph.nodes)):
        return False
    data = _data(graph.graph)
    for node in list(graph.graph.nodes):
        change = _CHANGES.get(node_name(node))
        changed = change is not None and change(graph.graph, node)
        if not changed and node in data and not _is_known(node, kept):
            return False
    graph.recompile()
    return True


def _data(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that may depend on values of the input; nodes of sizes do not."""
    data: set[fx.Node] = set()
    for node in graph.nodes:
        tensors = isinstance(node.meta.get("val"), (Tensor, list, tuple))
        depends = tensors and any(source in data for source in node.all_input_nodes)
        if node.op == "placeholder" or depends:
            data.add(node)
    return data


def _is_known(node: fx.Node, kept: tuple[str, ...]) -> bool:
    """Return whether an operator is not composite, or is a composite with a rule here."""
    target: Any = node.target
    name, arguments = node_name(node), node.args
    if name == "matmul" and isinstance(arguments[1], fx.Node):
        return bool(arguments[1].meta["val"].dim() == 2)
    return (
        not name
        or name in _KNOWN
        or name.startswith(kept)
        or any(part in name for part in RESIZES)
        or torch.Tag.pointwise in target.tags
        or not target.has_kernel_for_dispatch_key(_COMPOSITE)
    )


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_KNOWN = KNOWN | MOVES | PADS | frozenset((*PRODUCTS, *FUSED, *SOFTMAXES))


def _without_write(graph: fx.Graph, node: fx.Node) -> bool:
    """Replace an in-place write by a copy; return False if equality cannot be shown."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return True
    name = node_name(node)
    if name == "detach_":
        return _same(graph, node)
    packet = getattr(aten, name.removesuffix("_"), None) if name.endswith("_") else None
    pure: Any = getattr(packet, target._overloadname, None)
    written: Any = node.args[0]
    if pure is None or pure._schema.is_mutable:
        return False
    chain, base = [], written
    while base.target in _PARTS:
        chain.append(base)
        base = base.args[0]
    if base.op != "call_function" or _is_alias(base):
        return False
    order = {other: number for number, other in enumerate(graph.nodes)}
    if _is_seen_otherwise(base, order[node], order):
        return False
    with graph.inserting_before(node):
        value = graph.call_function(pure, node.args, node.kwargs)
        value.meta = dict(node.meta)
        whole = value
        for view in chain:
            parent = view.args[0]
            arguments = (parent, whole, *view.args[1:])
            whole = graph.call_function(_PARTS[view.target], arguments, view.kwargs)
            whole.meta = dict(parent.meta)

    def later(user: fx.Node) -> bool:
        return order.get(user, -1) > order[node]

    node.replace_all_uses_with(value)
    base.replace_all_uses_with(whole, later)
    graph.erase_node(node)
    return True


def _is_seen_otherwise(base: fx.Node, at: int, order: dict[fx.Node, int]) -> bool:
    """Return whether an older view of the written memory is read after the write."""
    todo = [base]
    while todo:
        for user in todo.pop().users:
            if order.get(user, -1) < at and _is_alias(user):
                if any(order.get(last, -1) > at for last in user.users):
                    return True
                todo.append(user)
    return False


def _is_alias(node: fx.Node) -> bool:
    return node_name(node) in _ALIASES or node.target is operator.getitem


def _same(graph: fx.Graph, node: fx.Node) -> bool:
    """Remove an operator if it returns its input; return whether it did."""
    source: Any = node.args[0]
    one, other = node.meta.get("val"), source.meta.get("val")
    if one is None or other is None or one.dtype != other.dtype:
        return False
    node.replace_all_uses_with(source)
    graph.erase_node(node)
    return True


def _sizes(graph: fx.Graph, source: fx.Node) -> list[Any]:
    """Return the sizes of a tensor; free ones as new nodes at the insertion point."""
    return [
        length
        if isinstance(length, int)
        else graph.call_function(aten.sym_size.int, (source, axis))
        for axis, length in enumerate(source.meta["val"].shape)
    ]


def _sized_as(graph: fx.Graph, node: fx.Node) -> bool:
    """Replace an operator with the sizes of another tensor by one with explicit sizes."""
    source, other = node.args
    if not isinstance(other, fx.Node):
        return False
    with graph.inserting_before(node):
        sizes = _sizes(graph, other)
    expands = node_name(node) == "expand_as"
    node.target = aten.expand.default if expands else aten.reshape.default
    node.args = (source, sizes)
    return True


def _dropout(graph: fx.Graph, node: fx.Node) -> bool:
    return node.args[2] is False and _same(graph, node)


def _layer_norm(graph: fx.Graph, node: fx.Node) -> bool:
    if node.kwargs:
        return False
    arguments = (*node.args[:5], *_NORM[len(node.args) :])
    with graph.inserting_before(node):
        norm = graph.call_function(aten.native_layer_norm.default, arguments)
        first = graph.call_function(operator.getitem, (norm, 0))
    norm.meta = {key: value for key, value in node.meta.items() if key != "val"}
    first.meta = dict(node.meta)
    node.replace_all_uses_with(first)
    graph.erase_node(node)
    return True


_NORM: tuple[Any, ...] = (None, None, None, None, 1e-5)
"""Defaults of the arguments of ``layer_norm``."""


def _matmul(graph: fx.Graph, node: fx.Node) -> bool:
    """Write a matrix product with several leading axes as one with a single leading axis."""
    nodes: Any = node.args
    left, right = (source.meta["val"] for source in nodes)
    if left.dim() == right.dim() == 2:
        node.target = aten.mm.default
        return True
    if left.dim() != right.dim() or str(left.shape[:-2]) != str(right.shape[:-2]):
        return False
    if left.dim() == 3:
        node.target = aten.bmm.default
        return True
    with graph.inserting_before(node):
        flat = [graph.call_function(aten.flatten.using_ints, (s, 0, -3)) for s in nodes]
        product = graph.call_function(aten.bmm.default, tuple(flat))
        rank = left.dim()
        sizes = [*_sizes(graph, nodes[0])[: rank - 1], *_sizes(graph, nodes[1])[rank - 1 :]]
        whole = graph.call_function(aten.reshape.default, (product, sizes))
    for made in (*flat, product, whole):
        made.meta = {key: value for key, value in node.meta.items() if key != "val"}
    whole.meta = dict(node.meta)
    node.replace_all_uses_with(whole)
    graph.erase_node(node)
    return True


def _einsum(graph: fx.Graph, node: fx.Node) -> bool:
    """Write an einsum of two tensors that is a matrix product with leading axes as one."""
    arguments: Any = node.args
    equation, sources = arguments[:2]
    given, arrow, result = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if not arrow or len(terms) != 2 or not given.replace(",", "").isalpha():
        return False
    left, right = terms
    leading = [axis for axis in result if axis in left and axis in right]
    rows, columns = ([a for a in one if a not in two] for one, two in (terms, terms[::-1]))
    summed = [axis for axis in left if axis in right and axis not in result]
    orders = (leading + rows + summed, leading + summed + columns, leading + rows + columns)
    if not leading or not len(rows) == len(columns) == len(summed) == 1:
        return False
    if any(sorted(o) != sorted(t) for o, t in zip(orders, (left, right, result), strict=True)):
        return False
    meta = {key: value for key, value in node.meta.items() if key != "val"}
    sides = []
    with graph.inserting_before(node):
        for source, term, order in zip(sources, terms, orders, strict=False):
            axes = [term.index(axis) for axis in order]
            side = graph.call_function(aten.permute.default, (source, axes))
            side.meta = {**meta, "val": source.meta["val"].permute(axes)}
            sides.append(side)
        product = graph.call_function(aten.matmul.default, tuple(sides))
        product.meta = meta
        axes = [orders[2].index(axis) for axis in result]
        whole = graph.call_function(aten.permute.default, (product, axes))
    whole.meta = dict(node.meta)
    node.replace_all_uses_with(whole)
    graph.erase_node(node)
    return _matmul(graph, product)


_CHANGES = {
    "einsum": _einsum,
    "detach": _same,
    "to": _same,
    "type_as": _same,
    "contiguous": _same,
    "dropout": _dropout,
    "layer_norm": _layer_norm,
    "matmul": _matmul,
    **dict.fromkeys(("expand_as", "view_as", "reshape_as"), _sized_as),
}
