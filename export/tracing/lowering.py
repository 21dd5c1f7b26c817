"""Prepares a program of ``torch.export`` for ONNX without another trace.

PyTorch's ``run_decompositions`` traces again, which takes three times as long as the first trace.
Here in-place writes become copies, and operators are written as those whose nodes say more.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ...models.torch_internals import OpOverload

aten = torch.ops.aten

_PARTS: dict[Any, Any] = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
}
"""View operator -> the operator that writes a changed view back into its tensor."""

_SHIFTS: dict[str, Any] = {
    "__lshift__": aten.bitwise_left_shift,
    "__rshift__": aten.bitwise_right_shift,
}
"""Operators of Python -> those that have translations for every type of operand."""

_SHIFTS_IN_PLACE = {"__ilshift__": "__lshift__", "__irshift__": "__rshift__"}
"""``a <<= b`` -> ``a << b``."""

_ALIASES = frozenset(
    re.findall(
        r"\w+",
        "view reshape permute transpose t mT expand expand_as view_as slice select split unbind "
        "chunk squeeze unsqueeze alias detach diagonal narrow flatten unflatten to contiguous "
        "movedim split_with_sizes tensor_split reshape_as unfold as_strided swapaxes moveaxis "
        "type_as dropout",
    )
)
"""Operators whose result may share memory with their input."""

CHECKS = ("_assert_scalar", "_assert_tensor_metadata", "_assert_async", "sym_constrain_range")
"""Operators that compute nothing."""


def lower_graph(graph: fx.Graph) -> bool:
    """Lower a graph in place; return whether it worked. If not, the graph must not be used.

    Args:
        graph: Graph of a program whose nodes have their values.
    """
    for node in list(graph.nodes):
        if name_of(node).startswith(CHECKS):
            graph.erase_node(node)
        elif name_of(node) in ("to", "type_as", "detach") and not _copies(node):
            _same(graph, node)  # a write to its result is one to its input
    if not without_writes(graph):
        return False
    for node in list(graph.nodes):
        change = _CHANGES.get(name_of(node))
        if change is not None:
            change(graph, node)
    _remove_unread(graph)
    return True


def without_writes(graph: fx.Graph) -> bool:
    """Replace in-place writes by copies, in place; return False where equality cannot be shown."""
    return all(_without_write(graph, node) for node in list(graph.nodes))


def _remove_unread(graph: fx.Graph) -> None:
    """Remove the nodes whose results nothing reads: none writes in place any more."""
    for node in reversed(list(graph.nodes)):
        if node.op not in ("placeholder", "output") and not node.users:
            graph.erase_node(node)


def name_of(node: fx.Node) -> str:
    """Return the name of a node's operator without its overload, or ""."""
    target = node.target
    is_overload = isinstance(target, OpOverload)
    return target._schema.name.partition("::")[2] if is_overload else ""  # type: ignore[union-attr]


def _without_write(graph: fx.Graph, node: fx.Node) -> bool:
    """Replace an in-place write by a copy; return False if equality cannot be shown."""
    target = node.target
    if not isinstance(target, OpOverload) or not target._schema.is_mutable:
        return True
    name = name_of(node)
    if name == "detach_":
        return _same(graph, node)
    pure = _without_write_of(target)
    written: Any = node.args[0]
    if pure is None:
        return False
    chain, base = [], written
    while base.target in _PARTS:
        chain.append(base)
        base = base.args[0]
    if base.op != "call_function" or _memory_of(base).op != "call_function":
        return False
    order = {other: number for number, other in enumerate(graph.nodes)}
    if _is_seen_otherwise(base, order[node], order):
        return False
    with graph.inserting_before(node):
        value = graph.call_function(pure, node.args, node.kwargs)
        value.meta = dict(node.meta)
        updated = value
        for view in chain:
            parent = view.args[0]
            arguments = (parent, updated, *view.args[1:])
            updated = graph.call_function(_PARTS[view.target], arguments, view.kwargs)
            updated.meta = dict(parent.meta)

    def later(user: fx.Node) -> bool:
        return order.get(user, -1) > order[node]

    node.replace_all_uses_with(value)
    base.replace_all_uses_with(updated, later)
    graph.erase_node(node)
    return True


def _without_write_of(target: Any) -> Any:
    """Return the overload that returns what another one writes in place; None if there is none.

    Its name may be another: that of ``pow_.Scalar`` is ``pow.Tensor_Scalar``.
    """
    name = target._schema.name.partition("::")[2]
    pure = _SHIFTS_IN_PLACE.get(name, name.removesuffix("_"))
    packet = getattr(aten, pure, None) if name.endswith("_") else None
    if packet is None:
        return None
    expected = _describe_arguments(target)
    for name in packet.overloads():
        overload = getattr(packet, name)
        parameters = _describe_arguments(overload)
        if parameters == expected and not overload._schema.is_mutable:
            return overload
    return None


def _describe_arguments(overload: Any) -> list[tuple[str, str]]:
    """Return names and types of an operator's arguments."""
    arguments = overload._schema.arguments
    return [(argument.name, str(argument.type)) for argument in arguments]


def _is_seen_otherwise(base: fx.Node, at: int, order: dict[fx.Node, int]) -> bool:
    """Return whether the written memory is read after the write by another way than the base."""
    todo = [_memory_of(base)]
    while todo:
        current = todo.pop()
        places = {user: order.get(user, -1) for user in current.users}
        if current is not base and max(places.values(), default=-1) > at:
            return True
        earlier = [user for user, place in places.items() if place < at]
        todo += [user for user in earlier if _is_alias(user)]
    return False


def _memory_of(node: fx.Node) -> fx.Node:
    """Return the node whose memory a chain of views shares, perhaps."""
    while _is_alias(node):
        source: Any = node.args[0]
        node = source
    return node


def _is_alias(node: fx.Node) -> bool:
    return name_of(node) in _ALIASES or node.target is operator.getitem


def _copies(node: fx.Node) -> bool:
    """Return whether an operator that converts its input returns a copy in any case."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    names = [argument.name for argument in schema.arguments]
    named = dict(zip(names, node.args, strict=False))
    return bool((named | node.kwargs).get("copy"))


def _same(graph: fx.Graph, node: fx.Node) -> bool:
    """Remove an operator if it returns its input; return whether it did."""
    source: Any = node.args[0]
    one, other = node.meta.get("val"), source.meta.get("val")
    if one is None or other is None or one.dtype != other.dtype:
        return False
    node.replace_all_uses_with(source)
    graph.erase_node(node)
    return True


def _dropout(graph: fx.Graph, node: fx.Node) -> bool:
    return node.args[2] is False and _same(graph, node)


def _reshape(graph: fx.Graph, node: fx.Node) -> bool:
    """Write a view as a reshape: its input may have another memory layout then."""
    if isinstance(node.args[1], (list, tuple)):
        node.target = aten.reshape.default
    return True


def _shift(graph: fx.Graph, node: fx.Node) -> bool:
    """Write ``a << b`` and ``a >> b`` as the operators of tensors, which have translations."""
    target: Any = node.target
    packet = _SHIFTS[name_of(node)]
    node.target = packet.Tensor if target._overloadname == "Tensor" else packet.Tensor_Scalar
    return True


def _transpose(graph: fx.Graph, node: fx.Node) -> bool:
    node.args = (node.args[0], -2, -1)
    node.target = aten.transpose.int
    return True


def _name_all_axes(graph: fx.Graph, node: fx.Node) -> bool:
    """Name the axes of an extreme value over all of them, which its translation needs."""
    tensor: Any = node.args[0]
    axes, *others = node.args[1:] or ((),)
    if not axes and "dim" not in node.kwargs:
        rank = tensor.meta["val"].dim()
        node.args = (tensor, list(range(rank)), *others)
    return True


_CHANGES: dict[str, Callable[[fx.Graph, fx.Node], bool]] = {
    "dropout": _dropout,
    **dict.fromkeys(("detach", "to", "type_as", "contiguous"), _same),
    **dict.fromkeys(("view", "_unsafe_view"), _reshape),
    **dict.fromkeys(("mT", "mH"), _transpose),
    **dict.fromkeys(("amax", "amin"), _name_all_axes),
    **dict.fromkeys(_SHIFTS, _shift),
}
