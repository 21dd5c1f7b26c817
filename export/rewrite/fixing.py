"""Fixes the sizes of a graph for any size: all that depends on no pixel becomes a constant."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ...core.arrays import Array
from ...runtime.ort_values import copy_from_ort
from ..execute.parts import constant_of, names_read
from ..execute.sized import at_size
from .sources import inputs_of, kind_of


def fix_sizes(model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Write the graph of one size of its inputs, in place.

    Args:
        model: The graph, with nodes of nystra but without bodies.
        shapes: Shape of each input.

    Raises:
        UnsupportedModelError: onnxruntime cannot compute it, or it needs too much memory.
    """
    inputs = inputs_of(model)
    feeds = {
        str(value.name): np.zeros(shapes[str(value.name)], ir.DataType(kind_of(value)).numpy())
        for value in inputs
    }
    sized = at_size(model, feeds)
    graph = model.graph
    for value in inputs:
        value.shape = ir.Shape(shapes[str(value.name)])
    held: dict[str, ir.Value] = {}
    for node in list(graph):
        if any(str(value.name) in sized.data for value in node.outputs):
            for value in list(names_read(node)):
                producer = value.producer()
                if producer is not None and str(value.name) not in sized.data:
                    held.setdefault(str(value.name), value)
    for value in held.values():
        write_constant(graph, value, copy_from_ort(sized.held(value)), "fixed")


def write_constant(graph: ir.Graph, value: ir.Value, array: Array, suffix: str) -> None:
    """Let a graph read an array wherever it reads a value, under its name with a suffix."""
    tensor = ir.tensor(np.asarray(array, order="C"))  # ascontiguousarray gives a scalar an axis
    constant = constant_of(f"{value.name}_{suffix}", tensor)
    graph.register_initializer(constant)
    ir.convenience.replace_all_uses_with(value, constant)
