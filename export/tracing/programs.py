"""The programs of PyTorch networks, for any size where that can be, or recorded from a run."""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from ...core.errors import TraceError, UnsupportedModelError
from ...core.ports.port import Port
from ...models.facts import Facts
from ...models.sizes.given import GivenNetwork, copy_sharing_weights
from ...models.sizes.open_caches import open_caches
from ...models.torch_internals import OpOverload, make_fx
from ..attention.site import find_sites
from .conditions import refuse_branches
from .copies import Copied
from .deciding_sizes import FreeAxes, sizes_deciding_otherwise
from .examples import by_argument, dynamic_shapes, examples_of, images_of, limit_axes, limits_of
from .lowering import lower_graph, name_of
from .repeats import Observed, Repeats, observe
from .shortcuts import trace_settings
from .size_conditions import Condition, record_conditions
from .size_fault import find_limits, size_fault
from .time_limit import BRANCHES, within_limit
from .values_read import refuse_values_read

_STACK = "nn_module_stack"

_SMALLEST = 1, 1
"""Rows and columns, in units, of the image of the run that shows how modules are used."""


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
    observed = observe(copy_sharing_weights(network), small) if once else None
    try:
        return export_program(network, examples, by_argument(network, free), observed, facts.inputs)
    except (TraceError, UnsupportedModelError):
        raise
    except Exception:  # its code may branch on values
        if free is not None:
            raise
        return record_program(network, examples), {}


def export_program(
    network: nn.Module,
    examples: tuple[Tensor, ...],
    free: tuple[Any, ...] | None,
    observed: Observed | None = None,
    ports: Sequence[Port] = (),
) -> tuple[ExportedProgram, dict[str, Copied]]:
    """Return the program of a network by ``torch.export``, whose free axes stay free.

    Args:
        network: Network in evaluation mode. It is not modified.
        examples: Inputs to trace with.
        free: Free axes of each input, as ``torch.export`` takes them.
        observed: What a run of the network showed: modules of the same structure are traced once.
            None: every module is traced.
        ports: The inputs, whose names are in messages.

    Returns:
        The program, and its calls of parts that are traced once, by name.

    Raises:
        UnsupportedModelError: It draws random numbers, or computes something else for sizes that
            its code decides by.
        Exception: Any error of PyTorch's tracer.
    """
    limits = limits_of(free)
    try:
        program, repeats, conditions = _trace(network, examples, free, observed)
    except Exception as error:  # noqa: BLE001 - what it decides for other sizes is compared below
        wide = FreeAxes.of_inputs(examples, ports, 1).within(limits) if ports else None
        narrow = find_limits(error, network, wide) if wide else {}
        try:
            if not narrow:
                raise
            program, repeats, conditions = _trace(
                network, examples, limit_axes(free, narrow), observed
            )
        except Exception as other:
            fault = size_fault(other, network, wide) if wide else None
            if fault is None:
                raise
            raise TraceError(fault) from other
    names = [port.free_axes() for port in ports]
    axes = FreeAxes.of(program, names).within(limits)
    conditions = [condition.rename(axes.symbols) for condition in conditions]
    if _may_be_otherwise(conditions, axes):
        full = program
        if repeats is not None:  # calls cannot be run
            full = _program(copy_sharing_weights(network), examples, free)
            axes = FreeAxes.of(full, names).within(limits)
        with within_limit(ports, BRANCHES):
            refuse_branches(full, conditions, network, partial(_outputs, network), axes, observed)
    before = copy.deepcopy(program.graph_module.graph)
    if lower_graph(program.graph_module.graph):
        program.graph_module.recompile()
    else:
        program.graph_module.graph = before
        program = program.run_decompositions({})
    return program, {} if repeats is None else repeats.list_calls()


def _trace(
    network: nn.Module,
    examples: tuple[Tensor, ...],
    free: tuple[Any, ...] | None,
    observed: Observed | None,
) -> tuple[ExportedProgram, Repeats | None, list[Condition]]:
    traced = copy_sharing_weights(network)
    repeats = None if observed is None else Repeats(traced, observed)
    with record_conditions() as conditions:
        return _program(traced, examples, free), repeats, conditions


def _may_be_otherwise(conditions: Sequence[Condition], axes: FreeAxes) -> bool:
    return any(
        sizes_deciding_otherwise(condition, (), axes, axes.example, 1) for condition in conditions
    )


def _outputs(network: nn.Module, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs of a network as it was given, or as it is where sites replace a part."""
    original = getattr(network, "given", None)
    if isinstance(original, GivenNetwork) and not find_sites(network):
        outputs = original.outputs_for(inputs)
        if outputs is not None:
            return outputs
    with torch.no_grad():
        copied = copy_sharing_weights(network)
        returned = copied(*(tensor.clone() for tensor in inputs))
    return (returned,) if isinstance(returned, Tensor) else tuple(returned)


def _refuse_random(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.users and _is_random(node):
            name = name_of(node)
            raise UnsupportedModelError(
                f"the network draws random numbers in evaluation mode ({name}), so its output is "
                "not deterministic and an exported file could not be validated"
            )


def _is_random(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    named = [argument.name for argument in target._schema.arguments]
    positional = zip(named, node.args, strict=False)
    values = dict(positional) | node.kwargs
    if "dropout_p" in named:  # attention, which drops nothing in evaluation mode
        return bool(values.get("dropout_p", 0.0))
    return not ("train" in named and not values.get("train")) and not (
        "training" in named and not values.get("training")
    )


def _program(
    network: nn.Module,
    examples: tuple[Tensor, ...],
    free: tuple[Any, ...] | None,
) -> ExportedProgram:
    settings = trace_settings(is_free=free is not None)
    with torch.no_grad(), without_fast_paths(), open_caches(network), settings:
        program = torch.export.export(
            network,
            tuple(tensor.clone() for tensor in examples),
            dynamic_shapes=free,
            prefer_deferred_runtime_asserts_over_guards=True,
        )
    _refuse_random(program)
    return program


def record_program(network: nn.Module, examples: tuple[Tensor, ...]) -> ExportedProgram:
    """Return the program of one eager run. Its image size is fixed.

    Args:
        network: Network in evaluation mode. It is not modified.
        examples: Inputs of the run.

    Raises:
        UnsupportedModelError: Its code reads values that depend on the inputs.
    """
    with torch.no_grad(), without_fast_paths(), open_caches(network):
        refuse_values_read(copy_sharing_weights(network), [tensor.clone() for tensor in examples])
    network = copy_sharing_weights(network)

    def run(*inputs: Tensor) -> Any:
        return network(*inputs)

    with torch.no_grad(), without_fast_paths(), open_caches(network), _paths(network):
        inputs = tuple(tensor.clone() for tensor in examples)
        try:
            functional = torch.func.functionalize(run, remove="mutations")
            graph = _record_graph(functional, inputs)
        except Exception:  # noqa: BLE001 - some have no functional form: kept as they are
            graph = _record_graph(run, inputs)
    _detach(graph)
    program = _program(graph, examples, None)
    nodes = _list_calls(graph)
    traced_nodes = _list_calls(program.graph_module)
    if [node.target for node in nodes] == [node.target for node in traced_nodes]:
        for node, traced in zip(nodes, traced_nodes, strict=True):
            traced.meta[_STACK] = node.meta.get(_STACK, {})
    return program


def _list_calls(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "call_function"]


def _record_graph(function: Any, inputs: tuple[Tensor, ...]) -> fx.GraphModule:
    with torch.fx.traceback.preserve_node_meta():
        traced = make_fx(function, tracing_mode="real", _error_on_data_dependent_ops=False)
        graph: fx.GraphModule = traced(*inputs)
    return graph


def _detach(graph: fx.GraphModule) -> None:
    """Detach the constants of a graph. In a recorded graph some have an autograd history."""
    for module in graph.modules():
        for attributes in (module._buffers, vars(module)):
            for name, value in attributes.items():
                if isinstance(value, Tensor) and not value.is_leaf:
                    attributes[name] = value.detach()


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
        modules = [(path, (path, kind)) for path, kind in stack]
        meta[_STACK] = OrderedDict(modules)

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
        hook = enter(path, type(module).__name__)
        hooks.append(module.register_forward_pre_hook(hook))
        hooks.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        meta.pop(_STACK, None)
        for hook in hooks:
            hook.remove()
