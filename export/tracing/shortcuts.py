"""Changes PyTorch and onnxscript during a trace: skips steps that do not change the file.

Each change is needed with PyTorch 2.15 and onnxscript 0.7.2, and none has a public option. With a
version that does not have what a function changes, it changes nothing. `tests/export/
test_shortcuts_needed.py` fails once one is no longer needed, or has lost what it changes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from ...models.torch_internals import OpOverload
from .decomposition import Table, decompose
from .fused_attention import finite_constants, write_attention
from .size_operands import has_size, tensor_types_of, write_sizes

_ROUNDING = 1e-7

_FEW_ELEMENTS = 1024
"""Of constants whose values a trace knows: those of colors, windows and kernels."""

_QUADRATIC = "SlicesSplit"
"""A rule of onnxscript that compares every node with every other. It looks for two Slices that
could be one Split, but networks call an operator for Split directly."""


@contextlib.contextmanager
def _change(
    owner: Any,
    name: str,
    change: Callable[[Any], Any],
) -> Iterator[None]:
    """Change an attribute while the context is active, if this version of the library has it."""
    before = getattr(owner, name, None)
    if before is None:
        yield
        return
    setattr(owner, name, change(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def translations_once() -> contextlib.AbstractContextManager[None]:
    """Cache onnxscript's translations of operators for PyTorch.

    Otherwise each export reads the sources of all 497 translations, which takes most of a second.
    """
    from torch.onnx._internal import _lazy_import

    apis: Any = getattr(_lazy_import, "onnxscript_apis", None)  # other versions have it elsewhere
    return _change(apis, "get_torchlib_ops", _once)


@functools.cache
def _once(read: Callable[[], Any]) -> Callable[[], Any]:
    return functools.cache(read)


def signatures_once() -> contextlib.AbstractContextManager[None]:
    """Use the signature that PyTorch notes in each translation.

    Otherwise each export derives all of them from annotations, half of the time of a small one.
    """
    from torch.onnx._internal.exporter import _schemas

    def change(read: Any) -> Any:
        def signature(function: Any, *arguments: Any, **named: Any) -> Any:
            noted = getattr(function, "_pt_onnx_signature", None)
            return read(function, *arguments, **named) if noted is None else noted

        return signature

    return _change(_schemas, "op_signature_from_function", change)


def without_memory_formats() -> contextlib.AbstractContextManager[None]:
    """Keep traced convolutions from choosing the memory format of their result.

    A graph has none, and for an input with its channels last the choice compares all sides with 1.
    """

    def change(_: Any) -> Any:
        return lambda *_: torch.contiguous_format

    return _change(torch._C, "_conv_determine_backend_memory_format", change)


def with_sides_of_one() -> contextlib.AbstractContextManager[None]:
    """Keep PyTorch from assuming sides larger than 1 when it checks whether a map is contiguous.

    Otherwise the maps of a network with strided convolutions need at least 2 rows and columns.
    """
    from torch.fx.experimental import _config

    return _change(_config, "backed_size_oblivious", lambda _: True)


def without_fake_cache() -> contextlib.AbstractContextManager[None]:
    """Keep PyTorch from storing what each operator returns for tensors of free sizes.

    To store it, all expressions of sizes in its result are compared with each other, which takes a
    third of a trace and decides more than the network does.
    """
    from torch._dynamo import config

    return _change(config, "fake_tensor_cache_enabled", lambda _: False)


def with_small_constants() -> contextlib.AbstractContextManager[None]:
    """Let PyTorch know the values of small tensors that code makes of numbers.

    It knows those of one element alone, and ``(std == 0).any()`` in torchvision's ``normalize``
    was a branch on unknown values.
    """
    from torch._subclasses import fake_tensor

    return _change(fake_tensor, "CONSTANT_NUMEL_LIMIT", lambda own: max(own, _FEW_ELEMENTS))


@contextlib.contextmanager
def trace_settings(*, is_free: bool = True) -> Iterator[None]:
    """Set PyTorch up for the trace of a network, of free sizes or of fixed ones."""
    fake_cache = without_fake_cache() if is_free else contextlib.nullcontext()
    with fake_cache, with_small_constants():
        yield


def without_quadratic_rules() -> contextlib.AbstractContextManager[None]:
    """Keep onnxscript's optimizer from a rule whose time grows with the square of the graph."""
    from onnxscript import rewriter

    def change(rules: Any) -> Any:
        return tuple(rule for rule in rules if rule.name != _QUADRATIC)

    return _change(rewriter, "_DEFAULT_REWRITE_RULES", change)


def constants_exactly() -> contextlib.AbstractContextManager[None]:
    """Let rules of onnxscript take a constant for 0 or 1 only if it is: 1e-8 protects a quotient.

    Others may differ by the rounding of float32, as the root of 2.
    """
    from onnxscript.rewriter import _matcher

    def change(own: Any) -> Any:
        def isclose(one: float, other: float, *, rel_tol: float, abs_tol: float) -> bool:
            tolerance = min(rel_tol, _ROUNDING)
            return bool(own.isclose(one, other, rel_tol=tolerance))

        return SimpleNamespace(isclose=isclose)

    return _change(_matcher, "math", change)


@contextlib.contextmanager
def decompose_where_needed(program: ExportedProgram) -> Iterator[None]:
    """Decompose only the operators of a program that need it; all of it would be another trace.

    Operators that PyTorch decomposes by default may remain, and may have no translation.
    """
    run_decompositions: Any = program.run_decompositions

    def decompose_needed(table: Table | None = None, **others: Any) -> Any:
        outputs = program.graph.output_node()
        before = [str(result) for result in outputs.args[0]]
        done = table is not None and decompose(program.graph, table)
        for old, new in zip(before, outputs.args[0], strict=True):
            program.graph_signature.replace_all_uses(old, str(new))
        if done:
            program.graph_module.recompile()
            return program
        return run_decompositions(table, **others)

    vars(program)["run_decompositions"] = decompose_needed
    try:
        yield
    finally:
        del vars(program)["run_decompositions"]


def promote_where_needed(
    program: ExportedProgram, *, in_pieces: bool
) -> contextlib.AbstractContextManager[None]:
    """Promote types only in a program that mixes types, since that is another run.

    Sizes beside tensors become tensors first, since PyTorch's promotion does not know all of them,
    and fused attention is written as its translation takes it.

    Args:
        program: The program; its graph is changed.
        in_pieces: Whether fused attention is translated in pieces.
    """
    from torch.onnx._internal.exporter import _fx_passes

    finite = finite_constants(program)

    def change(promote: Any) -> Any:
        def promote_if_needed(graph: fx.GraphModule) -> None:
            sized = write_sizes(graph.graph)
            attention = write_attention(graph.graph, finite, in_pieces=in_pieces)
            if sized or attention:
                graph.recompile()
            if not all(_is_of_one_type(node) for node in graph.graph.nodes):
                promote(graph)

        return promote_if_needed

    return _change(_fx_passes, "insert_type_promotion_nodes", change)


_aten = torch.ops.aten

_INTEGRAL = {torch.int64, torch.bool}


def _is_of_one_type(node: fx.Node) -> bool:
    """Return whether an operator promotes no type.

    All its tensors are float32, or of one type without fractions, as are its numbers and result.
    """
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return node.op != "get_attr"  # a graph within the graph
    result = node.meta.get("val")
    if target.overloadpacket in (_aten._to_copy, _aten.sym_size):
        return True
    types = tensor_types_of(node)
    if has_size(node) and types != {torch.int64}:
        return False
    if types <= {torch.float32}:
        return True
    fractions = any(isinstance(argument, float) for argument in node.args)
    if (
        len(types) > 1
        or not types <= _INTEGRAL
        or fractions
        or not isinstance(result, torch.Tensor)
    ):
        return False
    return result.dtype in {*types, torch.bool}
