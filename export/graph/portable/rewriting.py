"""A model file for engines that read standard ONNX alone."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx.inliner
from onnx import TensorProto, helper, numpy_helper

from ....core.errors import ExportError
from ....plugins.domain import DOMAIN
from ...execute.editing import PassResult
from ...execute.parts import subgraphs
from .body_nodes import write_body
from .rules import RANK
from .static_graph import StaticGraph

OPSET = 18
"""Opset of portable files, which older engines read too."""


def make_portable(model: onnx.ModelProto) -> PassResult:
    """Rewrite a model of one size in standard operators, in place.

    The nystra nodes become their bodies; constants are evaluated, so that no arithmetic on sizes is
    left; every node has a unique name; windows are moved in steps of at most four axes.

    Args:
        model: A model of opset 18, traced at one size, with or without bodies.

    Returns:
        The model; its notes are what some engines still do not support.

    Raises:
        ExportError: A size is unknown, or a node has a subgraph. UnsupportedModelError: An operator
            of nystra has no such form.
    """
    others = [(function.domain, function.name) for function in model.functions]
    others = [name for name in others if name[0] != DOMAIN]
    if others:  # of another program's file
        model.CopyFrom(onnx.inliner.inline_selected_functions(model, others))
    graph = StaticGraph(OPSET, [value.name for value in model.graph.output])
    names = {"": ""}
    for value in model.graph.input:
        form = value.type.tensor_type
        if not all(size.HasField("dim_value") for size in form.shape.dim):
            raise ExportError(
                f"input {value.name} has a free size, expected a fixed one: give `static`"
            )
        shape = tuple(size.dim_value for size in form.shape.dim)
        graph.input(value.name, form.elem_type, shape)
        names[value.name] = value.name
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        names[tensor.name] = graph.constant(array, tensor.name)
    for node in model.graph.node:
        renamed = onnx.NodeProto()
        renamed.CopyFrom(node)
        renamed.input[:] = [names[name] for name in node.input]
        if any(subgraphs(node)):
            raise ExportError(f"node {node.name} ({node.op_type}) has a subgraph")
        results = write_body(graph, renamed, OPSET) if node.domain == DOMAIN else graph.add(renamed)
        names.update(zip(node.output, results, strict=True))
    inputs = [value.name for value in model.graph.input]
    outputs = {value.name: names[value.name] for value in model.graph.output}
    written = graph.graph(model.graph.name, inputs, outputs)
    del model.functions[:]
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", OPSET))
    model.graph.CopyFrom(written)
    return PassResult(model, tuple(_describe_unsupported(graph, written.node)))


def _describe_unsupported(graph: StaticGraph, nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """Return a sentence for each kind of node that not every engine supports."""
    many = []
    integers = []
    for node in nodes:
        known_names = [name for name in node.output if name in graph.tensors]
        outputs = [graph.tensors[name] for name in known_names]
        if any(len(tensor.shape) > RANK for tensor in outputs):
            many.append(node)
        if any(tensor.kind == TensorProto.INT64 for tensor in outputs):
            integers.append(node)
    return [
        f"{len(nodes_of_kind)} nodes {what}, which not every engine supports; the first is "
        f"{nodes_of_kind[0].name} ({nodes_of_kind[0].op_type})"
        for nodes_of_kind, what in (
            (many, f"have more than {RANK} axes"),
            (integers, "compute with 64-bit integers"),
        )
        if nodes_of_kind
    ]
