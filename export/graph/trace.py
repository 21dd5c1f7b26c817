"""Tracing a network whose sites are operators into an ONNX model without bodies."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

import onnx
import torch
from torch import nn
from torch.export import Dim

from ...models.facts import Facts
from ...plugins.errors import ExportError
from .nodes import translation_table

_LARGEST_SIDE = 1 << 14
_LARGEST_BATCH = 1 << 10


def example_shape(facts: Facts, static: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the shape to trace with: the static one, or one that freezes no axis."""
    if static is not None:
        return static
    rows, columns = facts.window
    # A batch of 1 would become a constant; so would sides that equal the padded ones.
    return (2, facts.input_channels, 2 * rows - 3, 3 * columns - 5)


def trace(
    network: nn.Module, facts: Facts, opset: int, static: tuple[int, ...] | None = None
) -> onnx.ModelProto:
    """Trace a network (B, C, H, W) to (B, C', H', W').

    Args:
        network: its sites in operator form.
        facts: of the network.
        opset: 18, 19 or 20, of the default domain.
        static: the only input shape, or None for any batch, height and width.

    Returns:
        A model with input ``input``, output ``output`` and nodes of the domain ``nystra``.

    Raises:
        ExportError: the network cannot be traced; the cause is in the message.
    """
    example = torch.zeros(example_shape(facts, static))
    shapes = None
    if static is None:
        batch = Dim("batch", min=1, max=_LARGEST_BATCH)
        height = Dim("height", min=1, max=_LARGEST_SIDE)
        width = Dim("width", min=1, max=_LARGEST_SIDE)
        shapes = ({0: batch, 2: height, 3: width},)
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(
                network,
                (example,),
                dynamic_shapes=shapes,
                prefer_deferred_runtime_asserts_over_guards=True,
            )
            program = program.run_decompositions({})
            exported = torch.onnx.export(
                program,
                dynamo=True,
                input_names=["input"],
                output_names=["output"],
                opset_version=opset,
                custom_translation_table=translation_table(),
                optimize=True,
                verbose=False,
            )
    except Exception as error:  # whatever the tracer raises, the export ends here
        raise ExportError(f"PyTorch could not trace the network: {error}") from error
    if exported is None:
        raise ExportError("torch.onnx.export returned no program")
    model: onnx.ModelProto = exported.model_proto
    return model


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
