"""Writes sizes of the image that are operands beside tensors as tensors of the type computed in.

``x * x.shape[-1]`` has a size, an int64 number, beside a float32 tensor. ONNX has no numbers of
another type than that of the tensor beside them, and many translations expect numbers that they can
read.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, fx

from ...models.torch_internals import OpOverload, decomposition_table
from .decomposition import write_parts
from .lowering import name_of

_NUMBERS, _TENSORS = {"number", "Optional[number]"}, {"Tensor", "Optional[Tensor]"}
"""Types of parameters that take operands; those of shapes and axes have others."""

_NO_OPERANDS = {"attn_mask", "condition", "index", "indices", "mask"}
"""Parameters whose tensors do not decide the type of the result."""

_OF_THE_FIRST = {"masked_fill", "fill", "index_fill"}
"""Operators whose result has the type of their first tensor, whatever the number is."""

_NUMBER_LIKE: dict[type, int | float] = {torch.SymInt: 1, torch.SymFloat: 1.0}
"""Type of a size -> a number that promotes types as it does."""


def _norm(
    tensor: Tensor,
    order: Any = 2,
    axes: Any = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the norm of any finite order: PyTorch's parts branch on whether the order is even."""
    converted = tensor if dtype is None else tensor.to(dtype)
    sizes = converted.abs()
    axes = axes or list(range(tensor.dim()))
    sums = (sizes**order).sum(axes, keepdim)
    different = (sizes != 0).to(sizes.dtype).sum(axes, keepdim)
    exponent = 1.0 / torch.full((), order, dtype=sizes.dtype)
    is_count = torch.full((), order) == 0
    return torch.where(is_count, different, sums**exponent)


def _roll(tensor: Tensor, shifts: Any, axes: Any = ()) -> Tensor:
    """Return a tensor whose elements are moved cyclically."""
    if not axes:
        rolled = _roll(tensor.flatten(), shifts, [0])
        return rolled.reshape(tensor.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        length = tensor.shape[axis]
        index = (torch.arange(length, device=tensor.device) - shift) % length
        tensor = tensor.index_select(axis, index)
    return tensor


_PARTS: dict[Any, Any] = {
    torch.ops.aten.linalg_vector_norm.default: _norm,
    torch.ops.aten.roll.default: _roll,
}
"""Operators whose translations or parts need the value of a size -> parts that do not."""


def _takes_size(node: fx.Node) -> bool:
    nodes: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), nodes.append)
    return any(_is_size(node) for node in nodes)


def write_sizes(graph: fx.Graph) -> bool:
    """Write sizes among the operands of a graph as tensors; return whether something was written.

    Args:
        graph: Graph of a program whose nodes have their values; it is modified.
    """
    nodes = list(graph.nodes)
    written = [_write_sizes_of(graph, node, {node.target}) for node in nodes]
    return any(written)


def has_size(node: fx.Node) -> bool:
    """Return whether an operator has a size among its operands."""
    return any(_is_size(value) for value in _operands_of(node).values())


def tensor_types_of(node: fx.Node) -> set[torch.dtype]:
    """Return the types of the tensors that decide the type of an operator's result."""
    sources: list[fx.Node] = []
    fx.map_arg(list(_list_arguments(node).values()), sources.append)
    return {source.meta["val"].dtype for source in sources if _is_tensor(source)}


def _operands_of(node: fx.Node) -> dict[str, Any]:
    """Return the tensors and numbers that an operator computes with, by the names of parameters."""
    arguments = _list_arguments(node)
    types = _types_of(node.target) if arguments else {}
    written_types = _NUMBERS | _TENSORS
    return {name: value for name, value in arguments.items() if types[name] in written_types}


def _list_arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of an operator of PyTorch that decide the type of its result."""
    target = node.target
    is_overload = isinstance(target, OpOverload)
    if not is_overload or target.namespace not in ("aten", "prims"):  # type: ignore[union-attr]
        return {}
    positional = zip(_types_of(target), node.args, strict=False)
    arguments = dict(positional) | node.kwargs
    return {name: value for name, value in arguments.items() if name not in _NO_OPERANDS}


def _types_of(overload: Any) -> dict[str, str]:
    return {parameter.name: str(parameter.type) for parameter in overload._schema.arguments}


def _is_size(value: Any) -> bool:
    return isinstance(value, fx.Node) and type(value.meta.get("val")) in _NUMBER_LIKE


def _write_sizes_of(graph: fx.Graph, node: fx.Node, parents: set[Any]) -> bool:
    """Write the sizes of an operator as tensors.

    Args:
        graph: The graph.
        node: The operator.
        parents: It and the operators that it is a part of, which are not decomposed again.

    Returns:
        Whether something was written.
    """
    operands = _operands_of(node)
    if node.target in _PARTS and _takes_size(node):
        return _decompose(graph, node, parents, _PARTS[node.target])
    if not has_size(node) or not isinstance(node.meta.get("val"), Tensor):
        return False
    target: Any = node.target
    overload = _overload_of_tensors(node)
    kind = _type_of(node, operands)
    if overload is None:
        return _decompose(graph, node, parents, decomposition_table.get(target))
    tensors = [value for value in operands.values() if _is_tensor(value)]
    kinds = {kind, *(value.meta["val"].dtype for value in tensors)}
    if overload is node.target and kinds == {torch.int64}:
        return False  # sizes are int64
    types = _types_of(overload)
    written = {
        name: _convert(graph, node, value, kind)
        for name, value in operands.items()
        if types[name] in _TENSORS and value is not None
    }
    positional = zip(types, node.args, strict=False)
    node.args = tuple(written.get(name, value) for name, value in positional)
    named = node.kwargs.items()
    node.kwargs = {name: written.get(name, value) for name, value in named}
    node.target = overload
    return True


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), Tensor)


def _type_of(node: fx.Node, operands: dict[str, Any]) -> torch.dtype:
    """Return the type that an operator computes in."""
    total = torch.zeros((), dtype=torch.bool)  # any other type comes before it
    for value in operands.values():
        if _is_tensor(value):
            tensor: Tensor = value.meta["val"]
            shape = (1,) * min(tensor.dim(), 1)
            other: Any = torch.zeros(shape, dtype=tensor.dtype)
            if name_of(node) in _OF_THE_FIRST:
                return tensor.dtype
        elif _is_size(value):
            other = _NUMBER_LIKE[type(value.meta["val"])]
        elif isinstance(value, int | float):
            other = value
        else:
            continue
        other_dims = other.dim() if isinstance(other, Tensor) else 0
        dims = max(total.dim(), other_dims)
        dtype = torch.result_type(total, other)
        total = torch.zeros((1,) * dims, dtype=dtype)
    return total.dtype


def _overload_of_tensors(node: fx.Node) -> Any:
    """Return the overload of an operator that takes tensors for its sizes, or None."""
    target: Any = node.target
    sized = [name for name, value in _operands_of(node).items() if _is_size(value)]
    packet = target.overloadpacket
    overloads = [getattr(packet, name) for name in packet.overloads()]
    expected = list(_types_of(target))
    for overload in (target, *overloads):
        types = _types_of(overload)
        if list(types) == expected and all(types[name] in _TENSORS for name in sized):
            return overload
    return None


def _convert(graph: fx.Graph, node: fx.Node, value: Any, kind: torch.dtype) -> fx.Node:
    """Return a tensor or number as a tensor of a type, computed before a node."""
    result: Tensor = node.meta["val"]
    aten, shape = torch.ops.aten, ()
    convert: Any = aten.scalar_tensor.default
    if _is_tensor(value):
        if value.meta["val"].dtype == kind:
            return value  # type: ignore[no-any-return]
        convert, shape = aten._to_copy.default, value.meta["val"].shape
    with graph.inserting_before(node):
        tensor = graph.call_function(convert, (value,), {"dtype": kind})
    shaped = result.new_empty(shape, dtype=kind)
    tensor.meta = {**node.meta, "val": shaped}
    return tensor


def _decompose(graph: fx.Graph, node: fx.Node, parents: set[Any], parts: Any) -> bool:
    """Write an operator that takes a size by others, in which sizes are tensors."""
    if parts is None:
        return False
    before = {*graph.nodes}
    with _without_guards(node):
        written = write_parts(graph, node, parts, {})
    if not written:
        return False
    for part in [inner for inner in graph.nodes if inner not in before]:
        if part.target not in parents:
            _write_sizes_of(graph, part, {*parents, part.target})
    return True


def _without_guards(node: fx.Node) -> contextlib.AbstractContextManager[None]:
    """Return a context in which a decomposition that needs one value of a size fails.

    ``int(beta)`` would otherwise write the side of the traced image as a constant, and the file
    would be wrong at every other size. Older PyTorch has no such context.
    """
    mode = getattr(node.meta["val"], "fake_mode", None)
    sizes = getattr(mode, "shape_env", None)
    forbid: Any = getattr(sizes, "error_on_new_guards", contextlib.nullcontext)
    context: contextlib.AbstractContextManager[None] = forbid()
    return context
