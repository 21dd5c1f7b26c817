"""Adds nodes, constants and outputs to the graph of a model, replaces and renames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .parts import find_names_read_in, subgraphs


@dataclass(frozen=True)
class PassResult:
    """The result of a pass: a function that takes a model first, and changes it in place.

    Attributes:
        model: The model.
        notes: What it left alone and why, one sentence each: warnings of the export.
    """

    model: onnx.ModelProto
    notes: tuple[str, ...] = ()


class NodeWriter:
    """Collects new nodes of a graph; constants and outputs are added to it at once.

    Attributes:
        nodes: The new nodes, in order; nodes of the graph may be put among them.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self.nodes: list[onnx.NodeProto] = []

    def op(
        self,
        operator: str,
        inputs: Sequence[str],
        output: str,
        name: str = "",
        **attributes: Any,
    ) -> str:
        """Add a node with one output, and return the name of this."""
        node = helper.make_node(operator, inputs, [output], name or None, **attributes)
        self.nodes.append(node)
        return output

    def constant(self, name: str, values: Any) -> str:
        """Add a constant, and return its name."""
        tensor = numpy_helper.from_array(np.asarray(values), name)
        self._graph.initializer.append(tensor)
        return name

    def show(
        self,
        name: str,
        kind: int,
        shape: Sequence[int],
    ) -> None:
        """Make a value an output of the graph.

        Args:
            name: Its name.
            kind: Its type, as ONNX numbers it.
            shape: Its shape.
        """
        info = helper.make_tensor_value_info(name, kind, shape)
        self._graph.output.append(info)

    def replace_all(self) -> None:
        """Replace the nodes of the graph by those of the writer."""
        replace_nodes(self._graph, self.nodes)


def replace_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Replace the nodes of a graph; current ones may be among the new ones."""
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def drop_unread(graph: onnx.GraphProto) -> None:
    """Remove the initializers that neither a node, nor a subgraph of one, nor an output reads."""
    used = find_names_read_in(graph)
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in used:
            del graph.initializer[index]


def rename_values(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename values of a graph wherever its nodes, its outputs and the graphs inside use them."""
    for node in graph.node:
        inputs = [names.get(name, name) for name in node.input]
        outputs = [names.get(name, name) for name in node.output]
        node.input[:] = inputs
        node.output[:] = outputs
        for inside in subgraphs(node):
            rename_values(inside, names)
    for value in (*graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
