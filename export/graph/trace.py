"""Tracing a network whose sites are operators into an ONNX model without bodies."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, RemoveUnusedNodesPass
from torch import nn
from torch.export import Dim

from ...models.facts import Facts
from ...plugins.errors import ExportError
from ...plugins.ports.examples import trace_size
from ...plugins.ports.port import AXES, SIDES, Port, picture_size
from .nodes import translation_table


def example_shapes(facts: Facts) -> list[tuple[int, ...]]:
    """Return the shape of each input to trace with, one that freezes no free axis.

    Sides are none that the network would pad to.
    """
    cell = facts.cell
    size = facts.sides or picture_size(2 * cell - 1, 3 * cell - 5)
    return [port.shape(trace_size(facts.inputs, size)) for port in facts.inputs]


def _dynamic_shapes(ports: Sequence[Port], least: int) -> tuple[dict[int, Any], ...] | None:
    """Return the free axes of each input, the same one where the name is the same.

    Sides are ``least`` pixels and more.
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


def trace(network: nn.Module, facts: Facts, opset: int) -> onnx.ModelProto:
    """Trace a network: its inputs to its outputs.

    Args:
        network: Its sites in operator form.
        facts: Of the network.
        opset: 18, 19 or 20, of the default domain.

    Returns:
        A model with the inputs and outputs that the facts name, and nodes of the domain
        ``nystra``.

    Raises:
        ExportError: The network cannot be traced; the cause is in the message.
    """
    examples = tuple(torch.zeros(shape) for shape in example_shapes(facts))
    try:
        with torch.no_grad(), _quiet(), _sizes_of_one():
            program = torch.export.export(
                network,
                examples,
                dynamic_shapes=_dynamic_shapes(facts.inputs, facts.size_minimum),
                prefer_deferred_runtime_asserts_over_guards=True,
            )
            exported = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[port.name for port in facts.inputs],
                output_names=[port.name for port in facts.outputs],
                opset_version=opset,
                custom_translation_table=translation_table(),
                optimize=False,
                verbose=False,
            )
            if exported is None:
                raise ExportError("torch.onnx.export returned no program")
            _merge_equal_nodes(exported.model)
            _squeeze_weights(exported.model)
            exported.optimize()
    except ExportError:
        raise
    except Exception as error:  # whatever the tracer raises, the export ends here
        raise ExportError(f"PyTorch could not trace the network: {error}") from error
    model: onnx.ModelProto = exported.model_proto
    return model


def _merge_equal_nodes(model: ir.Model) -> None:
    """Merge the nodes of a raw graph that compute the same, in place; most of its nodes do.

    The optimiser ends with this too, but one of its rules compares every node with every other
    before: for 12 steps of CSNLN that is most of the time of an export.
    """
    CommonSubexpressionEliminationPass()(model)
    RemoveUnusedNodesPass()(model)


def _squeeze_weights(model: ir.Model) -> None:
    """Store weights that the network squeezes in the shape it squeezes them to, in place.

    The optimiser computes small constants only. A large weight would stay behind a node, where
    neither low precision nor other programs see that it is one.
    """
    for node in model.graph:
        if node.op_type != "Squeeze" or len(node.inputs) != 2:
            continue
        weight, places = node.inputs
        if weight is None or weight.const_value is None or places is None:
            continue
        axes = ir.convenience.get_const_tensor(places)
        if axes is None or len(weight.uses()) != 1:
            continue
        values = weight.const_value.numpy().squeeze(tuple(axes.numpy().reshape(-1)))
        weight.const_value = ir.Tensor(values, name=weight.name)
        weight.shape = ir.Shape(values.shape)
        ir.convenience.replace_all_uses_with(node.outputs[0], weight)


def _sizes_of_one() -> contextlib.AbstractContextManager[object]:
    """Keep PyTorch from taking sides for larger than 1 where it asks whether a map is contiguous.

    Without it the maps of a network with strided convolutions get 2 rows and columns at least.
    """
    from torch.fx.experimental import _config

    if not hasattr(_config, "backed_size_oblivious"):
        return contextlib.nullcontext()
    patched: contextlib.AbstractContextManager[object] = _config.patch(  # type: ignore[attr-defined]
        backed_size_oblivious=True
    )
    return patched


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
