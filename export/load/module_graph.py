"""The plain ONNX graph of a network: traced once, its free sides kept, and not optimized."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from torch import nn
from torch.export import ExportedProgram

from ...models.facts import Facts
from ..tracing.alike import idle_parts
from ..tracing.copies import Copied
from ..tracing.programs import exported, recorded, shared_copy
from ..tracing.shortcuts import without_simplified_roundings, without_stack_traces
from ..tracing.trace import (
    by_argument,
    converted,
    dynamic_shapes,
    examples_of,
    sizes_of_one,
)
from .constants import fold_constants
from .searching import images_of

_SMALLEST = 1, 1
"""Rows and columns, in units, of the image that is used to find modules that return their input."""


def plain_graph(network: nn.Module, facts: Facts, opset: int, *, once: bool = True) -> ir.Model:
    """Return the graph of a network for the sizes that its facts name.

    Args:
        network: The network, which is not modified.
        facts: Its facts.
        opset: Version of the default domain: 18, 19 or 20.
        once: Whether modules of the same structure share one trace.

    Raises:
        Exception: Any error of PyTorch's tracer.
    """
    free = dynamic_shapes(facts.inputs, facts.size_minimum)
    small = tuple(images_of(facts, _SMALLEST))
    examples = small if free is None else examples_of(facts)
    with sizes_of_one(), _silent(), without_stack_traces(), without_simplified_roundings():
        idle = idle_parts(shared_copy(network), small) if once else None
        try:
            program, copied = exported(network, examples, by_argument(network, free), idle)
        except Exception:  # its code may branch on values
            if free is not None:
                raise
            program, copied = recorded(network, examples), {}
    names = ([port.name for port in facts.inputs], [port.name for port in facts.outputs])
    return plain(program, *names, opset, copied, network)


def plain(
    program: ExportedProgram,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int,
    copied: Mapping[str, Copied],
    network: nn.Module,
) -> ir.Model:
    """Return the graph of a program; arguments as of `converted`."""
    model = converted(program, inputs, outputs, opset, copied, network)
    _split_directly(model.graph)
    fold_constants(model)
    return model


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Silence PyTorch's loggers while it traces."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _split_directly(graph: ir.Graph) -> None:
    """Write a split into a sequence, all of whose items are read, as ``Split``, in place."""
    for node in list(graph):
        if node.op_type != "SplitToSequence" or node.domain:
            continue
        items = [use.node for use in node.outputs[0].uses()]
        sizes = _sizes(node)
        if sizes is None or any(item.op_type != "SequenceAt" for item in items):
            continue
        name = str(node.outputs[0].name)
        held = ir.Value(name=f"{name}_sizes", const_value=ir.tensor(np.array(sizes, np.int64)))
        held.type, held.shape = ir.TensorType(ir.DataType.INT64), ir.Shape([len(sizes)])
        graph.register_initializer(held)
        split = ir.Node(
            "",
            "Split",
            [node.inputs[0], held],
            [ir.AttrInt64("axis", node.attributes["axis"].as_int())],
            num_outputs=len(sizes),
            metadata_props=dict(node.metadata_props),
        )
        for number, output in enumerate(split.outputs):
            output.name = f"{name}_{number}"
        graph.insert_before(node, split)
        for item in items:
            place = ir.convenience.get_const_tensor(item.inputs[1])  # type: ignore[arg-type]
            output = split.outputs[int(place.numpy())]  # type: ignore[union-attr]
            output.shape, output.type = item.outputs[0].shape, item.outputs[0].type
            ir.convenience.replace_all_uses_with(item.outputs[0], output)
            graph.remove(item, safe=True)
        graph.remove(node, safe=True)


def _sizes(node: ir.Node) -> list[int] | None:
    """Return the lengths of the parts of a split, or None if they are not known."""
    source, split = node.inputs[:2]
    given = None if split is None else ir.convenience.get_const_tensor(split)
    if given is None or source is None:
        return None
    sizes: list[int] | int = given.numpy().tolist()
    if isinstance(sizes, list):
        return sizes
    whole = None if source.shape is None else source.shape[node.attributes["axis"].as_int()]
    if not isinstance(whole, int):
        return None
    return [*[sizes] * (whole // sizes), *[whole % sizes] * (whole % sizes > 0)]
