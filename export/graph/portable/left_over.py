"""Nodes of a portable graph that some engines do not support."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import TensorProto

from .rules import RANK
from .static_graph import StaticGraph


def left_over(graph: StaticGraph, nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """Return a sentence for each kind of node that not every engine supports.

    Args:
        graph: The graph with the nodes.
        nodes: The nodes of the file.
    """
    many, whole = [], []
    for node in nodes:
        outputs = [graph.tensors[name] for name in node.output if name in graph.tensors]
        if any(len(tensor.shape) > RANK for tensor in outputs):
            many.append(node)
        if any(tensor.kind == TensorProto.INT64 for tensor in outputs):
            whole.append(node)
    return [
        f"{len(found)} nodes {what}, which not every engine supports; the first is "
        f"{found[0].name} ({found[0].op_type})"
        for found, what in (
            (many, f"have more than {RANK} axes"),
            (whole, "compute with 64-bit integers"),
        )
        if found
    ]
