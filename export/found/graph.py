"""Makes graphs of ATen operators with PyTorch's tracers, and simplifies them."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from ..tracing.program import VALUE
from .constants import fold_constants
from .lowering import lowered
from .repeats import Repeats

aten = torch.ops.aten

_KEPT = (
    "linear",
    "conv",
    "pixel",
    "upsample",
    "scaled_dot_product",
    "pad",
    "gelu",
    "hardswish",
    "hardsigmoid",
    "silu",
    "mish",
    "softplus",
    "leaky_relu",
)
"""Prefixes of operators that are not decomposed: layers, and operators with one ONNX node."""

_CHECKS = ("_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "_assert_async")
_META = ("nn_module_stack", VALUE, "onnx", "cut", "sized")
"""Entries of ``meta`` that nodes keep: the path of their module, their value while traced, and
for nodes of a file the name of the value, whether it is a value of the file (the default), and
whether a constant depends on the image size."""


Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Traced:
    """A graph with inputs to run it on.

    Attributes:
        graph: Graph of ATen operators; its constants are attributes.
        first: Inputs of the size at which attention is searched for.
        second: Inputs of another size, or None if the graph has a fixed size.
        second_graph: Graph for the second size, if ``graph`` has a fixed size but its file not;
            nodes correspond by the names of their values, ``meta["onnx"]``.
    """

    graph: fx.GraphModule
    first: tuple[Tensor, ...]
    second: tuple[Tensor, ...] | None
    second_graph: fx.GraphModule | None = None

    @property
    def free(self) -> bool:
        """Whether sites must read the sides of their map: only the file has free sizes."""
        return self.second is not None and self.second_graph is not None


def exported_graph(
    network: nn.Module,
    examples: tuple[Tensor, ...],
    free: tuple[Any, ...] | None,
    idle: Collection[str] | None = None,
) -> fx.GraphModule:
    """Return the graph of a network by ``torch.export``, whose free axes stay free.

    Args:
        network: Network in evaluation mode. It is not modified.
        examples: Inputs to trace with.
        free: Free axes of each input, as ``torch.export`` takes them.
        idle: Paths of modules that return their input. Modules of the same structure are traced
            once, and the settings of these are not compared. None: every module is traced.
    """
    network = shared_copy(network)
    repeats = None if idle is None else Repeats(network, idle)
    with torch.no_grad(), _quiet(), _without_fast_paths():
        program = torch.export.export(
            network,
            tuple(tensor.clone() for tensor in examples),
            dynamic_shapes=free,
            prefer_deferred_runtime_asserts_over_guards=True,
        )
        graph: fx.GraphModule = program.module(check_guards=False)
        if not lowered(graph, _KEPT):
            program = program.run_decompositions(_decompositions())
            graph = program.module(check_guards=False)
    if repeats is not None:
        repeats.expand(graph)
    _return_one(graph)
    tidied(graph)
    fold_constants(graph)
    return graph


def _return_one(graph: fx.GraphModule) -> None:
    """Make a graph return its only result instead of a list, and take a flat list of inputs."""
    output = graph.graph.output_node()
    results: Any = output.args[0]
    if isinstance(results, (list, tuple)) and len(results) == 1:
        output.args = (results[0],)
    graph.graph.set_codegen(torch.fx.graph.CodeGen())


def recorded_graph(network: nn.Module, examples: tuple[Tensor, ...]) -> fx.GraphModule:
    """Return the graph of one eager run. Its image size and its branches are fixed.

    Args:
        network: Network in evaluation mode. It is not modified.
        examples: Inputs of the run.
    """
    network = shared_copy(network)

    def run(*inputs: Tensor) -> Any:
        return network(*inputs)

    with torch.no_grad(), _quiet(), _without_fast_paths(), _paths(network):
        inputs = tuple(tensor.clone() for tensor in examples)
        try:
            graph = _recorded(torch.func.functionalize(run, remove="mutations"), inputs)
        except Exception:  # some operators have no functional form
            graph = _recorded(run, inputs)
    return tidied(graph)


def _recorded(function: Any, inputs: tuple[Tensor, ...]) -> fx.GraphModule:
    with torch.fx.traceback.preserve_node_meta():
        traced = make_fx(function, tracing_mode="real", _error_on_data_dependent_ops=False)
        graph: fx.GraphModule = traced(*inputs)
    return graph


def shared_copy(network: Module) -> Module:
    """Return a copy that shares its weights.

    Some networks store tensors during a run or a trace; these go into the copy.
    """
    shared = {id(tensor): tensor for tensor in [*network.parameters(), *network.buffers()]}
    return copy.deepcopy(network, shared)


def tidied(graph: fx.GraphModule) -> fx.GraphModule:
    """Remove checks from a graph and replace views by reshapes, in place; return the graph."""
    graph._forward_pre_hooks.clear()
    _detach(graph)
    for node in reversed(list(graph.graph.nodes)):
        if node.op != "call_function":
            continue
        if isinstance(node.target, torch._ops.OpOverload):
            if node.target._schema.name.partition("::")[2] in _CHECKS:
                graph.graph.erase_node(node)
            elif node.target in (aten.view.default, aten._unsafe_view.default):
                node.target = aten.reshape.default  # a site may have another memory layout
    for node in graph.graph.nodes:
        node.meta = {key: node.meta[key] for key in _META if key in node.meta}
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def _detach(graph: fx.GraphModule) -> None:
    """Detach the constants of a graph. In a recorded graph some have an autograd history."""
    for module in graph.modules():
        for held in (module._buffers, vars(module)):
            for name, value in held.items():
                if isinstance(value, Tensor) and not value.is_leaf:
                    held[name] = value.detach()


def _decompositions() -> dict[Any, Any]:
    """Return the decompositions of composite operators other than layers, such as einsum."""
    table: dict[Any, Any] = dict(torch.export.default_decompositions().items())
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    for operator in list(table):
        name = operator._schema.name.partition("::")[2]
        if name.startswith(_KEPT) or not operator.has_kernel_for_dispatch_key(key):
            table.pop(operator)
    return table


@contextlib.contextmanager
def _without_fast_paths() -> Iterator[None]:
    """Make nn.MultiheadAttention use separate operators instead of one fused operator."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _paths(network: nn.Module) -> Iterator[None]:
    """Record in each node the module that it runs in."""
    stack: list[tuple[str, str]] = []
    meta: dict[str, Any] = torch.fx.traceback.current_meta

    def note() -> None:
        meta["nn_module_stack"] = OrderedDict((path, (path, kind)) for path, kind in stack)

    def enter(path: str, kind: str) -> Any:
        def hook(*_: Any) -> None:
            stack.append((path, kind))
            note()

        return hook

    def leave(*_: Any) -> None:
        stack.pop()
        note()

    hooks = []
    for path, module in network.named_modules():
        hooks.append(module.register_forward_pre_hook(enter(path, type(module).__name__)))
        hooks.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        meta.pop("nn_module_stack", None)
        for hook in hooks:
            hook.remove()


def module_path(node: fx.Node) -> str:
    """Return the path of the innermost module of the network that a node runs in, or ""."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    while stack:
        path, kind = stack.pop()
        name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
        if not name.rpartition(".")[2].startswith(("Softmax", "Dropout", "Identity")):
            return str(path).partition("@")[0]
    return ""
