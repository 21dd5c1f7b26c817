"""Traces a network whose sites are operators into an ONNX model without bodies."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, RemoveUnusedNodesPass
from torch import Tensor, nn

from ...core.errors import ExportError, TraceError, UnsupportedModelError
from ...models.facts import Facts
from .centered_norms import center_norms
from .checked_parts import parts_checked
from .copies import Copied, LostPartError, expand_calls
from .deciding_sizes import FreeAxes
from .examples import by_argument, describe_fixed_shape
from .marks import mark_translations
from .nodes import translation_table
from .programs import export_program, program_of
from .real_transforms import cut_transforms
from .shortcuts import (
    constants_exactly,
    decompose_where_needed,
    promote_where_needed,
    signatures_once,
    translations_once,
    with_sides_of_one,
    without_memory_formats,
    without_quadratic_rules,
)
from .site_calls import site_translations
from .time_limit import CONVERSION, within_limit
from .trace_fault import trace_fault

_NEWEST_IN_PIECES = 22
"""The newest opset for which PyTorch writes its fused attention in pieces."""


def trace_graph(
    network: nn.Module,
    facts: Facts,
    opset: int,
    *,
    fused: bool = False,
    once: bool = True,
) -> ir.Model:
    """Return the graph of a network, not optimized; arguments as of `trace_network`.

    Raises:
        TraceError: The network cannot be traced; the cause is in the message.
        UnsupportedModelError: Its code decides by sizes or draws random numbers.
    """
    try:
        return graph_of(network, facts, opset, fused=fused, once=once)
    except (ExportError, UnsupportedModelError):
        raise
    except Exception as error:  # whatever the tracer raises, the export ends here
        _raise_refusal(error)
        free = any(port.free_axes() for port in facts.inputs)
        shape = describe_fixed_shape(facts.inputs)
        advice = f". A fixed size may work: `static` {shape}" if free else ""
        reason = trace_fault(error)
        raise TraceError(
            f"PyTorch could not trace the network: {reason}{advice}; see docs/own.md"
        ) from error


def _raise_refusal(error: BaseException | None) -> None:
    """Raise the refusal of nystra's that another library's error was raised from, if there is."""
    while error is not None:
        if isinstance(error, UnsupportedModelError):
            raise error
        error = error.__cause__


def graph_of(
    network: nn.Module,
    facts: Facts,
    opset: int,
    *,
    fused: bool = False,
    once: bool = True,
) -> ir.Model:
    """Return the graph of a network, which is not optimized; arguments as of `trace_network`.

    Raises:
        TraceError: It took more processor time than `limit_traces` allows.
        Exception: Any error of PyTorch's tracer.
    """
    input_names = [port.name for port in facts.inputs]
    names = (input_names, [port.name for port in facts.outputs])
    with _trace_plainly(), within_limit(facts.inputs):
        program, copied = program_of(network, facts, once=once)
    names_of_axes = [port.free_axes() for port in facts.inputs]
    axes = FreeAxes.of(program, names_of_axes)
    try:
        with within_limit(facts.inputs, CONVERSION), parts_checked(axes):
            return convert_program(program, *names, opset, copied, network, fused=fused)
    except LostPartError:
        return graph_of(network, facts, opset, fused=fused, once=False)


def convert_program(
    program: torch.export.ExportedProgram,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int,
    copied: Mapping[str, Copied],
    network: nn.Module,
    *,
    fused: bool = False,
) -> ir.Model:
    """Return the graph of a program, not optimized; ``copied`` names the parts of its calls."""
    traced = opset if fused else min(opset, _NEWEST_IN_PIECES)
    with (
        _trace_plainly(),
        translations_once(),
        signatures_once(),
        without_quadratic_rules(),
        constants_exactly(),
        promote_where_needed(program, in_pieces=traced <= _NEWEST_IN_PIECES),
    ):
        converted = _write(program, traced, inputs, outputs)
        if converted is None:
            raise ExportError("torch.onnx.export returned no program")
        expand_calls(converted.model, copied, network)
        center_norms(converted.model.graph)
        cut_transforms(converted.model.graph)
        # Most nodes have an equal one. The optimizer merges them only after a rule that compares
        # every node with every other, which takes most of the time of an export of CSNLN.
        CommonSubexpressionEliminationPass()(converted.model)
        RemoveUnusedNodesPass()(converted.model)
    model = converted.model
    model.opset_imports[""] = opset
    minimum = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    model.ir_version = max(model.ir_version, minimum)
    return model


def optimize_graph(model: ir.Model) -> onnx.ModelProto:
    """Return a graph after onnxscript's optimizer; the graph must not be used then."""
    from onnxscript import optimizer

    _squeeze_weights(model)
    with _quiet(), without_quadratic_rules(), constants_exactly():
        optimizer.optimize_ir(model)
    optimized: onnx.ModelProto = ir.to_proto(model)
    return optimized


def _squeeze_weights(model: ir.Model) -> None:
    """Store weights that the network squeezes in their squeezed shape, in place.

    The optimizer computes small constants only. A large weight would stay the input of a Squeeze,
    and neither the conversion to low precision nor other programs would recognize it as a weight.
    """
    for node in list(model.graph):
        weight = node.inputs[0] if node.op_type == "Squeeze" else None
        if weight is None or weight.const_value is None or len(weight.uses()) != 1:
            continue
        values = _squeeze(node, weight.const_value.numpy())
        if values is None:
            continue
        weight.const_value = ir.Tensor(values, name=weight.name)
        weight.shape = ir.Shape(values.shape)
        ir.convenience.replace_all_uses_with(node.outputs[0], weight)


def _squeeze(node: ir.Node, values: Any) -> Any:
    """Return the squeezed values, or None if the axes are no constant."""
    places = node.inputs[1] if len(node.inputs) == 2 else None
    axes = None if places is None else ir.convenience.get_const_tensor(places)
    if axes is None:
        return None
    numbers = axes.numpy().reshape(-1)
    return values.squeeze(tuple(numbers))


def trace_piece(
    module: nn.Module,
    examples: tuple[Tensor, ...],
    free: tuple[dict[int, Any], ...] | None,
    opset: int,
    inputs: Sequence[str],
    output: str,
    *,
    fused: bool = False,
) -> onnx.ModelProto:
    """Trace a module that computes a piece of a graph, and whose sites are operators.

    Args:
        module: Module with one result.
        examples: Inputs to trace with.
        free: Free axes of each input, as ``torch.export`` takes them; None if all are fixed.
        opset: Version of the default domain, 18 or later.
        inputs: Names of the inputs.
        output: Name of the result.
        fused: As of `trace_network`.

    Returns:
        A model with nodes of the domain ``nystra``.

    Raises:
        ExportError: The module cannot be traced; the cause is in the message.
    """
    try:
        with _trace_plainly():
            program, _ = export_program(module, examples, by_argument(module, free))
        with parts_checked(FreeAxes.of(program, ())):
            return optimize_graph(
                convert_program(program, inputs, [output], opset, {}, module, fused=fused)
            )
    except (ExportError, UnsupportedModelError):
        raise
    except Exception as error:  # whatever the tracer raises, the export ends here
        _raise_refusal(error)
        raise ExportError(f"PyTorch could not trace a piece of the graph: {error}") from error


def _write(
    program: torch.export.ExportedProgram,
    opset: int,
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> torch.onnx.ONNXProgram | None:
    """Return a program as ONNX; it is decomposed only if an operator has no translation."""
    convert = functools.partial(
        torch.onnx.export,
        program,
        dynamo=True,
        input_names=inputs,
        output_names=outputs,
        opset_version=opset,
        custom_translation_table=translation_table() | mark_translations() | site_translations(),
        optimize=False,
        verbose=False,
    )
    try:
        with decompose_where_needed(program):
            return convert()
    except torch.onnx.OnnxExporterError:
        return convert()


@contextlib.contextmanager
def _trace_plainly() -> Iterator[None]:
    """Trace without gradients and messages, and with all sides free."""
    with (
        torch.no_grad(),
        _quiet(),
        with_sides_of_one(),
        without_memory_formats(),
        _rare_collections(),
    ):
        yield


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Run the garbage collector a hundred times less often, since a trace keeps what it creates."""
    before = gc.get_threshold()
    gc.set_threshold(100 * before[0], *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


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
