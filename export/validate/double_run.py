"""The float64 run of a network, at the sizes at which a tolerance may depend on it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch import nn

from ...core.arrays import Array
from ...runtime.metrics.sanity import max_abs
from ..execute.parts import graphs_of
from ..execute.sized import pixel_values
from ..pytorch.network_session import NetworkSession
from ..rewrite.graph_network import GraphNetwork

_NO_ROUNDING = 0.05
"""Share of the difference that is always allowed, below which float64 changes no tolerance."""

# fmt: off
_SELECTING = frozenset((
    "ArgMax", "ArgMin", "BitShift", "Ceil", "DynamicQuantizeLinear", "Equal", "Floor", "Greater",
    "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual", "Mod", "NonMaxSuppression", "NonZero",
    "QuantizeLinear", "Round", "Sign", "TopK", "Unique",
))
# fmt: on
"""Operators whose results may jump where their inputs change little."""


class DoubleRun:
    """A network in float64, whose runs take most of the time of the references.

    Rounding errors of a continuous network depend little on the size of the image: where a size
    shows that they are far below what is always allowed, the float32 outputs stand for those of
    float64 at the next ones.
    """

    def __init__(self, network: nn.Module, *, always: bool) -> None:
        self._network: NetworkSession | None = NetworkSession(network, torch.float64)
        self._always = always

    def all(
        self, arrays: Sequence[Array], expected: list[Array], allowed: Sequence[float]
    ) -> list[Array]:
        """Return the outputs in float64, or the expected ones where these tell no more.

        Args:
            arrays: The inputs.
            expected: The outputs in float32.
            allowed: The difference of each output that is always allowed.
        """
        if self._network is None:
            return expected
        exact = self._network.all(arrays)
        errors = [max_abs(own, right) for own, right in zip(expected, exact, strict=True)]
        small = (e < _NO_ROUNDING * limit for e, limit in zip(errors, allowed, strict=True))
        if not self._always and all(small):
            self._network = None
        return exact


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
