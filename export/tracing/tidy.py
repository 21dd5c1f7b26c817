"""Stable, readable names in a graph, and nothing that differs between two exports."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence

import onnx

from ...core.ports.port import SIDES, Port
from ...plugins.domain import DOMAIN

SCOPES = "pkg.torch.onnx.name_scopes"
"""Property of a traced node: the modules it comes from, the outermost first, and its name."""


def tidy(model: onnx.ModelProto, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    """Clean a traced model in place.

    Nystra nodes are named after their site (``#2``, ``#3`` where it is used again), the free axes
    of inputs and outputs as their ports call them (``2*height`` where an output is twice as high
    as the first input); traces of the source code and inner shapes are dropped; attributes stand
    in the order of their names.
    """
    uses: Counter[str] = Counter()
    for node in model.graph.node:
        if node.domain == DOMAIN:
            site = site_path(node) or node.name
            uses[site] += 1
            node.name = site if uses[site] == 1 else f"{site}#{uses[site]}"
        del node.metadata_props[:]
        node.doc_string = ""
        ordered = sorted(node.attribute, key=lambda attribute: attribute.name)
        del node.attribute[:]
        node.attribute.extend(ordered)
    for value in [*model.graph.input, *model.graph.output, *model.graph.initializer]:
        del value.metadata_props[:]
        value.doc_string = ""
    del model.graph.value_info[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    model.graph.name = "nystra"
    for value, port in zip(model.graph.input, inputs, strict=True):
        _name_axes(value, port, 1)
    for value, port in zip(model.graph.output, outputs, strict=True):
        _name_axes(value, port, port.multiple)


def site_path(node: onnx.NodeProto) -> str:
    """Return the path of the innermost module that a traced node comes from, or ""."""
    scopes = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "[]")
    named = [scope for scope in ast.literal_eval(scopes)[:-1] if scope]
    return named[-1] if named else ""


def _name_axes(value: onnx.ValueInfoProto, port: Port, factor: int) -> None:
    """Name the axes that are free in the port and in the graph, which a static one has not."""
    for place, name in port.free_axes().items():
        dimension = value.type.tensor_type.shape.dim[place]
        if not dimension.HasField("dim_value"):
            grows = factor > 1 and port.axes[place] in SIDES
            dimension.dim_param = f"{factor}*{name}" if grows else name
