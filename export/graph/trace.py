"""Tracing a network whose sites are operators into an ONNX model without bodies."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, RemoveUnusedNodesPass
from torch import nn
from torch.export import Dim

from ...models.facts import Facts
from ...plugins.errors import ExportError
from .nodes import translation_table

_LARGEST_SIDE = 1 << 14
_LARGEST_BATCH = 1 << 10


def example_shapes(facts: Facts, static: tuple[int, ...] | None) -> list[tuple[int, ...]]:
    """Return the shape of each input to trace with: the static one, or one that freezes no axis.

    A batch of 1 would become a constant; so would sides that equal the padded ones.
    """
    rows, columns = facts.cell
    image = static or (2, facts.input_channels, 2 * rows - 1, 3 * columns - 5)
    shapes = [image]
    for one in facts.extra_inputs:
        other = 0 if one.same_size or static is not None else 2
        shapes.append((image[0], one.channels, image[2] + other, image[3] + 2 * other))
    return shapes


def _axes(facts: Facts) -> list[dict[int, Any]]:
    """Return the free axes of each input."""

    def sides(prefix: str) -> dict[int, Any]:
        return {
            2: Dim(f"{prefix}height", min=1, max=_LARGEST_SIDE),
            3: Dim(f"{prefix}width", min=1, max=_LARGEST_SIDE),
        }

    batch, image = {0: Dim("batch", min=1, max=_LARGEST_BATCH)}, sides("")
    others = [image if one.same_size else sides(f"{one.name}_") for one in facts.extra_inputs]
    return [batch | one for one in (image, *others)]


def trace(
    network: nn.Module, facts: Facts, opset: int, static: tuple[int, ...] | None = None
) -> onnx.ModelProto:
    """Trace a network: (B, C, H, W), and what else it takes, to (B, C', H', W').

    Args:
        network: its sites in operator form.
        facts: of the network.
        opset: 18, 19 or 20, of the default domain.
        static: the only shape of the picture, or None for any batch, height and width.

    Returns:
        A model with input ``input``, further ones as the facts name them, output ``output`` and
        nodes of the domain ``nystra``.

    Raises:
        ExportError: the network cannot be traced; the cause is in the message.
    """
    examples = tuple(torch.zeros(shape) for shape in example_shapes(facts, static))
    shapes = tuple(_axes(facts)) if static is None else None
    try:
        with torch.no_grad(), _quiet(), _sizes_of_one():
            program = torch.export.export(
                network,
                examples,
                dynamic_shapes=shapes,
                prefer_deferred_runtime_asserts_over_guards=True,
            )
            exported = torch.onnx.export(
                program,
                dynamo=True,
                input_names=["input", *(one.name for one in facts.extra_inputs)],
                output_names=["output"],
                opset_version=opset,
                custom_translation_table=translation_table(),
                optimize=False,
                verbose=False,
            )
            if exported is None:
                raise ExportError("torch.onnx.export returned no program")
            _merge_equal_nodes(exported.model)
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
