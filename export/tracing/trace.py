"""Traces a network whose sites are operators into an ONNX model without bodies."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, RemoveUnusedNodesPass
from torch import Tensor, nn
from torch.export import Dim

from ...core.errors import ExportError, TraceError
from ...core.ports.examples import trace_size
from ...core.ports.port import AXES, SIDES, Port, image_size
from ...models.facts import Facts
from .copies import Copied, expand_calls
from .expansion import Template, expand, free_weights
from .marks import mark_translations
from .nodes import translation_table
from .repeats import Call, call_translation, repeats_as_calls
from .shortcuts import (
    decomposed_where_needed,
    promoted_where_needed,
    without_quadratic_rules,
    without_stack_traces,
)
from .trace_fault import trace_fault
from .translations import missing_translations
from .weights import squeeze_weights

_NEWEST_IN_PIECES = 22
"""The newest opset for which PyTorch writes its fused attention in pieces."""

_CELLS = (11, 13)
"""Rows and columns, in cells of the network, of the image that is used for a trace."""

_FEW_CELLS = (5, 7)
"""The same for large windows: the free sizes of repeated modules grow from it."""


def example_shapes(facts: Facts) -> list[tuple[int, ...]]:
    """Return the shape of each input to trace with, such that all free axes stay free.

    Sides, in pixels, are no sizes that the network pads to, or that its code compares with.

    Swin transformers check whether a map has the size of the training, usually 64x64. A trace with
    this size would fix the sides of the graph.
    """
    sides = _FEW_CELLS if facts.large_windows else _CELLS
    size = facts.sides or image_size(*(cells * facts.cell - 1 for cells in sides))
    return [port.shape(trace_size(facts.inputs, size)) for port in facts.inputs]


def examples_of(facts: Facts) -> tuple[Tensor, ...]:
    """Return the inputs to trace with: zeros of each port's type."""
    shapes = zip(facts.inputs, example_shapes(facts), strict=True)
    return tuple(torch.from_numpy(np.zeros(shape, port.dtype)) for port, shape in shapes)


def dynamic_shapes(ports: Sequence[Port], least: int) -> tuple[dict[int, Any], ...] | None:
    """Return the free axes of each input by number, or None if there are none.

    Axes of the same name are the same `Dim`.

    Args:
        ports: Ports of the inputs.
        least: Smallest side, in pixels.
    """
    axes: dict[str, Any] = {}
    shapes = []
    for port in ports:
        for place, name in port.free_axes().items():
            axis = port.axes[place]
            smallest = least if axis in SIDES else 1
            axes.setdefault(name, Dim(name, min=smallest, max=AXES[axis].largest))
        shapes.append({place: axes[name] for place, name in port.free_axes().items()})
    return tuple(shapes) if axes else None


def trace(
    network: nn.Module,
    facts: Facts,
    opset: int,
    *,
    fused: bool = False,
) -> onnx.ModelProto:
    """Trace a network from its inputs to its outputs.

    Repeated modules are traced once for each kind and copied.

    Args:
        network: Network whose sites are operators.
        facts: Facts of the network.
        opset: Version of the default domain, 18 or later.
        fused: Write PyTorch's fused attention as ``Attention`` (opset 23 and later), not in pieces.

    Returns:
        A model with the inputs and outputs that the facts name, and nodes of the domain
        ``nystra``.

    Raises:
        TraceError: The network cannot be traced; the cause is in the message.
    """
    examples = examples_of(facts)
    names = ([port.name for port in facts.inputs], [port.name for port in facts.outputs])
    free = dynamic_shapes(facts.inputs, facts.size_minimum)
    traced = opset if fused else min(opset, _NEWEST_IN_PIECES)
    try:
        with torch.no_grad(), _quiet(), sizes_of_one(), _shortcuts(), _rare_collections():
            with repeats_as_calls(network) as calls:
                exported = _raw(network, examples, free, traced, *names)
            squeeze_weights(exported.model)
            exported.optimize()
            if calls:
                expand(exported.model, calls, _templates(calls, traced))
    except ExportError:
        raise
    except Exception as error:  # whatever the tracer raises, the export ends here
        advice = ". A fixed size may work: `static` 1x3x64x64" if free else ""
        reason = trace_fault(error)
        raise TraceError(
            f"PyTorch could not trace the network: {reason}{advice}; see docs/own.md"
        ) from error
    model: onnx.ModelProto = exported.model_proto
    _declare(model, opset)
    return model


def _declare(model: onnx.ModelProto, opset: int) -> None:
    """Declare the opset of a model, whose nodes mean the same at the one they were traced for."""
    for entry in model.opset_import:
        if entry.domain == "":
            entry.version = opset
    imports = [entry for entry in model.opset_import if entry.domain == ""]
    least = onnx.helper.find_min_ir_version_for(imports)
    model.ir_version = max(model.ir_version, least)


def converted(
    program: torch.export.ExportedProgram,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int,
    copied: Mapping[str, Copied],
    network: nn.Module,
) -> ir.Model:
    """Return the graph of a program, which is not optimized.

    Args:
        program: The program of a network.
        inputs: Names of its inputs.
        outputs: Names of its outputs.
        opset: Version of the default domain, 18 or later.
        copied: Name of a call in the program -> its part and its weights.
        network: The network with the weights.

    Raises:
        Exception: Any error of PyTorch's tracer.
    """
    with torch.no_grad(), _quiet(), sizes_of_one(), _shortcuts(), _rare_collections():
        traced = min(opset, _NEWEST_IN_PIECES)
        exported = _converted_undecomposed(program, _converter(traced, inputs, outputs))
        if exported is None:
            raise ExportError("torch.onnx.export returned no program")
        expand_calls(exported.model, copied, network)
        _merge_equal_nodes(exported.model)
    model = exported.model
    model.opset_imports[""] = opset
    least = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    model.ir_version = max(model.ir_version, least)
    return model


def optimized(model: ir.Model) -> onnx.ModelProto:
    """Return a graph after onnxscript's optimizer; the graph must not be used then."""
    from onnxscript import optimizer

    squeeze_weights(model)
    with _quiet(), without_quadratic_rules():
        optimizer.optimize_ir(model)
    made: onnx.ModelProto = ir.to_proto(model)
    return made


def trace_piece(
    module: nn.Module,
    examples: tuple[Tensor, ...],
    free: tuple[dict[int, Any], ...] | None,
    opset: int,
    inputs: Sequence[str],
    output: str,
) -> onnx.ModelProto:
    """Trace a module that computes a piece of a graph, and whose sites are operators.

    Args:
        module: Module with one result.
        examples: Inputs to trace with.
        free: Free axes of each input, as ``torch.export`` takes them; None if all are fixed.
        opset: Version of the default domain, 18 or later.
        inputs: Names of the inputs.
        output: Name of the result.

    Returns:
        A model with nodes of the domain ``nystra``.

    Raises:
        ExportError: The module cannot be traced; the cause is in the message.
    """
    try:
        with torch.no_grad(), _quiet(), sizes_of_one(), _shortcuts():
            exported = _raw(module, examples, free, opset, inputs, [output])
            exported.optimize()
    except ExportError:
        raise
    except Exception as error:  # whatever the tracer raises, the export ends here
        raise ExportError(f"PyTorch could not trace a piece of the graph: {error}") from error
    model: onnx.ModelProto = exported.model_proto
    return model


def _raw(
    module: nn.Module,
    examples: tuple[Tensor, ...],
    free: tuple[dict[int, Any], ...] | None,
    opset: int,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> torch.onnx.ONNXProgram:
    """Return the graph of a module, without equal nodes, not optimized yet."""
    program = torch.export.export(
        module,
        examples,
        dynamic_shapes=by_argument(module, free),
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    exported = _converter(opset, inputs, outputs)(program)
    if exported is None:
        raise ExportError("torch.onnx.export returned no program")
    _merge_equal_nodes(exported.model)
    return exported


def _converter(
    opset: int, inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> Callable[..., torch.onnx.ONNXProgram | None]:
    return functools.partial(
        torch.onnx.export,
        dynamo=True,
        input_names=inputs,
        output_names=outputs,
        opset_version=opset,
        custom_translation_table=translation_table()
        | call_translation()
        | mark_translations()
        | missing_translations(),
        optimize=False,
        verbose=False,
    )


def _converted_undecomposed(
    program: torch.export.ExportedProgram, convert: Callable[..., torch.onnx.ONNXProgram | None]
) -> torch.onnx.ONNXProgram | None:
    """Return a converted program; it is decomposed only if an operator has no translation."""
    try:
        with decomposed_where_needed(program):
            return convert(program)
    except torch.onnx.OnnxExporterError:
        return convert(program)


def by_argument(
    module: nn.Module, free: tuple[dict[int, Any], ...] | None
) -> tuple[Any, ...] | None:
    """Return the free axes of each input in the structure of a module's arguments."""
    if free is None:
        return None
    kinds = [parameter.kind for parameter in inspect.signature(module.forward).parameters.values()]
    if Parameter.VAR_POSITIONAL not in kinds:
        return free
    named = kinds.index(Parameter.VAR_POSITIONAL)
    return (*free[:named], free[named:])


def _templates(calls: Mapping[str, Call], opset: int) -> dict[str, Template]:
    """Return the graph of every call; calls that differ in weights only share one graph."""
    templates: dict[str, Template] = {}
    for name, call in calls.items():
        same = (templates[other] for other in templates if call.has_graph_of(calls[other]))
        templates[name] = next(same, None) or _template(call, opset)
    return templates


def _template(call: Call, opset: int) -> Template:
    exported = _raw(call.module, call.examples(), call.free_axes(), opset)
    template = free_weights(exported.model, call)
    exported.optimize()
    return template


def _merge_equal_nodes(model: ir.Model) -> None:
    """Merge equal nodes of a raw graph, in place; most of its nodes have an equal one.

    The optimizer merges them too, but only after a rule that compares every node with every other.
    For 12 steps of CSNLN this rule takes most of the time of an export.
    """
    CommonSubexpressionEliminationPass()(model)
    RemoveUnusedNodesPass()(model)


def sizes_of_one() -> contextlib.AbstractContextManager[object]:
    """Keep PyTorch from assuming sides larger than 1 when it checks whether a map is contiguous.

    Otherwise the maps of a network with strided convolutions need at least 2 rows and columns.
    """
    from torch.fx.experimental import _config

    if not hasattr(_config, "backed_size_oblivious"):
        return contextlib.nullcontext()
    patched: contextlib.AbstractContextManager[object] = _config.patch(  # type: ignore[attr-defined]
        backed_size_oblivious=True
    )
    return patched


@contextlib.contextmanager
def _shortcuts() -> Iterator[None]:
    """Skip steps of a trace that take time and do not change the file."""
    with (
        _translations_once(),
        without_stack_traces(),
        without_quadratic_rules(),
        promoted_where_needed(),
    ):
        yield


@contextlib.contextmanager
def _translations_once() -> Iterator[None]:
    """Cache onnxscript's translations of operators for PyTorch.

    Otherwise each export reads the sources of all 497 translations, which takes most of a second.
    """
    from torch.onnx._internal import _lazy_import

    apis: Any = getattr(_lazy_import, "onnxscript_apis", None)
    if apis is None:  # another version of PyTorch has it elsewhere
        yield
        return
    read = apis.get_torchlib_ops
    apis.get_torchlib_ops = lambda: _once(read)
    try:
        yield
    finally:
        vars(apis).pop("get_torchlib_ops", None)


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Run the garbage collector a hundred times less often, since a trace keeps what it creates."""
    before = gc.get_threshold()
    gc.set_threshold(100 * before[0], *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@functools.cache
def _once(read: Callable[[], Any]) -> Any:
    return read()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    disabled = logging.root.manager.disable
    printed = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),  # a graph that fails prints itself
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)  # an error that ends a trace is raised too
        try:
            yield
        finally:
            logging.disable(disabled)
