"""Gives a graph stable, readable names, and removes what differs between two exports."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence

import onnx

from ...core.ports.port import SIDES, Port
from ...plugins.domain import DOMAIN

SCOPES = "pkg.torch.onnx.name_scopes"
"""Key of a node's property: the modules that it comes from, the outermost first, and its name."""


def tidy(model: onnx.ModelProto, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    """Clean a traced model in place.

    Nystra nodes get the name of their site, with ``#2``, ``#3`` for further nodes of the site.
    The free axes of inputs and outputs get the names in their ports, ``2*height`` if an output is
    twice as high as the first input. Stack traces of the source code and inner shapes are
    removed. Attributes are sorted by name.

    Args:
        model: The model.
        inputs: Ports of its inputs, in their order.
        outputs: Ports of its outputs, in their order.
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
    graph = model.graph
    for value in [*graph.input, *graph.output, *graph.initializer]:
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
    return innermost_module(
        next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "[]")
    )


def innermost_module(scopes: str) -> str:
    """Return the path of the innermost module of the property `SCOPES` of a node, or ""."""
    modules = ast.literal_eval(scopes)[:-1]
    return next((scope for scope in reversed(modules) if scope), "")


def _name_axes(value: onnx.ValueInfoProto, port: Port, factor: int) -> None:
    """Name the axes that are free both in the port and in the graph."""
    for place, name in port.free_axes().items():
        dimension = value.type.tensor_type.shape.dim[place]
        if not dimension.HasField("dim_value"):
            grows = factor > 1 and port.axes[place] in SIDES
            dimension.dim_param = f"{factor}*{name}" if grows else name
