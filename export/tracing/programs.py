"""The programs of PyTorch networks, for any size where that can be, or recorded from a run."""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx

from ...models.facts import Facts
from .alike import Observed, Repeats, observe
from .copies import Copied
from .examples import by_argument, dynamic_shapes, examples_of, images_of
from .lowering import lowered

_STACK = "nn_module_stack"

_SMALLEST = 1, 1
"""Rows and columns, in units, of the image of the run that shows how modules are used."""

Module = TypeVar("Module", bound=nn.Module)


def shared_copy(network: Module) -> Module:
    """Return a copy that shares its weights.

    Some networks store tensors during a run or a trace; these go into the copy.
    """
    shared = {id(tensor): tensor for tensor in [*network.parameters(), *network.buffers()]}
    return copy.deepcopy(network, shared)


def program_of(
    network: nn.Module, facts: Facts, *, once: bool
) -> tuple[ExportedProgram, dict[str, Copied]]:
    """Return the program of a network for the sizes that its facts name, and its calls.

    Args:
        network: Network in evaluation mode. It is not modified.
        facts: Its facts.
        once: Whether modules of the same structure share one trace.
    """
    free = dynamic_shapes(facts.inputs, facts.size_minimum)
    small = tuple(images_of(facts, _SMALLEST))
    examples = small if free is None else examples_of(facts)
    observed = observe(shared_copy(network), small) if once else None
    try:
        return exported(network, examples, by_argument(network, free), observed)
    except Exception:  # its code may branch on values
        if free is not None:
            raise
        return recorded(network, examples), {}


def exported(
    network: nn.Module,
    examples: tuple[Tensor, ...],
    free: tuple[Any, ...] | None,
    observed: Observed | None = None,
) -> tuple[ExportedProgram, dict[str, Copied]]:
    """Return the program of a network by ``torch.export``, whose free axes stay free.

    Args:
        network: Network in evaluation mode. It is not modified.
        examples: Inputs to trace with.
        free: Free axes of each input, as ``torch.export`` takes them.
        observed: What a run of the network showed: modules of the same structure are traced once.
            None: every module is traced.

    Returns:
        The program, and its calls of parts that are traced once, by name.
    """
    traced = shared_copy(network)
    repeats = None if observed is None else Repeats(traced, observed)
    program = _program(traced, examples, free)
    before = copy.deepcopy(program.graph_module.graph)
    if lowered(program.graph_module.graph):
        program.graph_module.recompile()
    else:
        program.graph_module.graph = before
        program = program.run_decompositions({})
    return program, {} if repeats is None else repeats.copied()


def _program(
    network: nn.Module, examples: tuple[Tensor, ...], free: tuple[Any, ...] | None
) -> ExportedProgram:
    with torch.no_grad(), without_fast_paths():
        return torch.export.export(
            network,
            tuple(tensor.clone() for tensor in examples),
            dynamic_shapes=free,
            prefer_deferred_runtime_asserts_over_guards=True,
        )


def recorded(network: nn.Module, examples: tuple[Tensor, ...]) -> ExportedProgram:
    """Return the program of one eager run. Its image size and its branches are fixed.

    Args:
        network: Network in evaluation mode. It is not modified.
        examples: Inputs of the run.
    """
    network = shared_copy(network)

    def run(*inputs: Tensor) -> Any:
        return network(*inputs)

    with torch.no_grad(), without_fast_paths(), _paths(network):
        inputs = tuple(tensor.clone() for tensor in examples)
        try:
            graph = _recorded(torch.func.functionalize(run, remove="mutations"), inputs)
        except Exception:  # some operators have no functional form
            graph = _recorded(run, inputs)
    _detach(graph)
    program = _program(graph, examples, None)
    operators = [
        [node for node in one.graph.nodes if node.op == "call_function"]
        for one in (graph, program.graph_module)
    ]
    if [node.target for node in operators[0]] == [node.target for node in operators[1]]:
        for mine, traced in zip(*operators, strict=True):
            traced.meta[_STACK] = mine.meta.get(_STACK, {})
    return program


def _recorded(function: Any, inputs: tuple[Tensor, ...]) -> fx.GraphModule:
    with torch.fx.traceback.preserve_node_meta():
        traced = make_fx(function, tracing_mode="real", _error_on_data_dependent_ops=False)
        graph: fx.GraphModule = traced(*inputs)
    return graph


def _detach(graph: fx.GraphModule) -> None:
    """Detach the constants of a graph. In a recorded graph some have an autograd history."""
    for module in graph.modules():
        for held in (module._buffers, vars(module)):
            for name, value in held.items():
                if isinstance(value, Tensor) and not value.is_leaf:
                    held[name] = value.detach()


@contextlib.contextmanager
def without_fast_paths() -> Iterator[None]:
    """Make nn.MultiheadAttention use separate operators instead of one fused operator."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _paths(network: nn.Module) -> Iterator[None]:
    """Record in each node the module that it runs in."""
    stack: list[tuple[str, str]] = []
    meta: dict[str, Any] = torch.fx.traceback.current_meta

    def note() -> None:
        meta[_STACK] = OrderedDict((path, (path, kind)) for path, kind in stack)

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
        meta.pop(_STACK, None)
        for hook in hooks:
            hook.remove()
