"""Whether small changes of pixels change the outputs of a graph little."""

from __future__ import annotations

import onnx_ir as ir
from torch import nn

from ..execute.parts import graphs_of
from ..execute.sized import pixel_values
from .graph_network import GraphNetwork

# fmt: off
_SELECTING = frozenset((
    "ArgMax", "ArgMin", "BitShift", "Ceil", "DynamicQuantizeLinear", "Equal", "Floor", "Greater",
    "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual", "Mod", "NonMaxSuppression", "NonZero",
    "QuantizeLinear", "Round", "Sign", "TopK", "Unique",
))
# fmt: on
"""Operators whose results may jump where their inputs change little."""


def is_continuous(network: nn.Module) -> bool:
    """Return whether the graph of a network shows that small changes of pixels change it little.

    False for a network without a graph. A safe softmax, which looks for rows without keys, is
    continuous.
    """
    if not isinstance(network, GraphNetwork):
        return False
    graph = network.source.searched.graph
    data = pixel_values(graph)
    nodes = (node for node in graph if any(str(value.name) in data for value in node.outputs))
    return not any(_selects(node) for node in nodes)


def _selects(node: ir.Node) -> bool:
    to = node.attributes.get("to") if node.op_type == "Cast" else None
    counted = to is not None and not ir.DataType(to.as_int()).is_floating_point()
    return counted or node.op_type in _SELECTING or bool(graphs_of(node))
