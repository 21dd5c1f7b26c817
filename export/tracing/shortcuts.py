"""What PyTorch and onnxscript do in a trace that changes nothing of a file, left out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

_QUADRATIC = "SlicesSplit"
"""The rule of onnxscript that compares every node with every other: it looks for two Slices that
could be one Split, for which networks have an operator of their own."""


@contextlib.contextmanager
def without_stack_traces() -> Iterator[None]:
    """Keep PyTorch from noting for every node where in the network's code it was made."""
    config: Any = fx.config
    before = getattr(config, "do_not_emit_stack_traces", None)
    if before is None:  # an older PyTorch
        yield
        return
    config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        config.do_not_emit_stack_traces = before


@contextlib.contextmanager
def without_simplified_roundings() -> Iterator[None]:
    """Keep PyTorch from simplifying free sizes that were rounded, as ``int(B / (H * W / 64))``.

    Nothing gets simpler, and for Swin transformers it takes a fifth of a trace.
    """
    from torch.utils._sympy import functions

    held: Any = functions
    sympy, rounding = held.sympy, getattr(held, "TruncToInt", None)
    simplify = sympy.simplify

    def simplified(expression: Any, *settings: Any, **others: Any) -> Any:
        if rounding is not None and expression.has(rounding):
            return expression
        return simplify(expression, *settings, **others)

    sympy.simplify = simplified
    try:
        yield
    finally:
        sympy.simplify = simplify


@contextlib.contextmanager
def without_quadratic_rules() -> Iterator[None]:
    """Keep onnxscript's optimiser from the rule that takes longer the larger the graph is."""
    from onnxscript import rewriter

    rules = getattr(rewriter, "_DEFAULT_REWRITE_RULES", None)
    if rules is None:  # another onnxscript keeps them elsewhere
        yield
        return
    kept = tuple(rule for rule in rules if rule.name != _QUADRATIC)
    rewriter._DEFAULT_REWRITE_RULES = kept
    try:
        yield
    finally:
        rewriter._DEFAULT_REWRITE_RULES = rules


@contextlib.contextmanager
def decomposed_where_needed(program: ExportedProgram) -> Iterator[None]:
    """Let a program be decomposed only where an operator of it is: that traces it once more.

    An operator that PyTorch decomposes without being asked to may be left, without translation.
    """
    decompose: Any = program.run_decompositions

    def decomposed(table: Mapping[Any, Any] | None = None, **others: Any) -> Any:
        if table is not None and _is_decomposed(program.graph_module, table):
            return program
        return decompose(table, **others)

    vars(program)["run_decompositions"] = decomposed
    try:
        yield
    finally:
        del vars(program)["run_decompositions"]


@contextlib.contextmanager
def promoted_where_needed() -> Iterator[None]:
    """Let types be promoted only in a program that mixes them: that runs it once more."""
    from torch.onnx._internal.exporter import _fx_passes

    passes: Any = _fx_passes
    promote = getattr(passes, "insert_type_promotion_nodes", None)
    if promote is None:  # another PyTorch does it elsewhere
        yield
        return

    def promoted(graph: fx.GraphModule) -> None:
        if not all(_is_of_one_type(node) for node in graph.graph.nodes):
            promote(graph)

    passes.insert_type_promotion_nodes = promoted
    try:
        yield
    finally:
        passes.insert_type_promotion_nodes = promote


_TYPED = {torch.ops.aten.where, torch.ops.aten.index, torch.ops.aten.embedding}
"""Operators that take a condition or indices beside their values."""


def _is_of_one_type(node: fx.Node) -> bool:
    """Whether an operator takes float32 tensors only, so that none of them is promoted."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return node.op != "get_attr"  # a graph within the graph
    values = [source.meta.get("val") for source in node.all_input_nodes]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if target.overloadpacket in _TYPED:
        tensors = [value for value in tensors if value.dtype not in (torch.bool, torch.int64)]
    return all(value.dtype is torch.float32 for value in tensors)


def _is_decomposed(graph: fx.GraphModule, table: Mapping[Any, Any]) -> bool:
    """Whether no operator of a graph is to be decomposed, or changes what it is given."""
    for node in graph.graph.nodes:
        if node.op == "get_attr":  # a graph within the graph
            return False
        target = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            return False
        known = isinstance(target, torch._ops.OpOverload)
        if known and (target in table or target._schema.is_mutable):
            return False
    return True
