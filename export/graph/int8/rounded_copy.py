"""A float32 model that rounds where an int8 model does.

It is independent of the quantized file: scales and rounded weights are computed here, not read from
that file. With a switch for every layer it is also used to keep the budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...execute.editing import NodeWriter
from .layers import WeightLayer

SWITCHES = "nystra.exact"
"""The extra input of a model with switches: one boolean per layer, true if it stays float32."""

OWN_RANGES = "nystra.own_ranges"
"""Another one: if true, a map is rounded in 127 steps of its largest value, not of `ranges`."""


def make_rounded_copy(
    model: onnx.ModelProto,
    layers: Sequence[WeightLayer],
    ranges: Mapping[str, float],
    *,
    switches: bool = False,
) -> onnx.ModelProto:
    """Return a copy of a float32 model whose layers round weight and input to 8 bits.

    Args:
        model: Without bodies; not modified.
        layers: The layers that round.
        ranges: Input map of a layer -> its largest represented absolute value.
        switches: The copy has the inputs `SWITCHES` and `OWN_RANGES`.
    """
    copied: onnx.ModelProto = onnx.ModelProto.FromString(model.SerializeToString())
    graph = copied.graph
    writer = _RoundingWriter(graph, ranges)
    if switches:
        writer.add_switches(len(layers))
    places = {layer.node: place for place, layer in enumerate(layers)}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        place = places.get(node.name)
        if place is not None:
            layer = layers[place]
            if switches:
                node.input[0], node.input[1] = writer.add_switch(layer, place)
            else:
                weight = numpy_helper.from_array(layer.round_weight(), layer.weight)
                stored[layer.weight].CopyFrom(weight)
                step = writer.step(layer)
                node.input[0] = writer.round_input(layer, step)
        writer.nodes.append(node)
    writer.replace_all()
    return copied


class _RoundingWriter(NodeWriter):
    def __init__(self, graph: onnx.GraphProto, ranges: Mapping[str, float]) -> None:
        super().__init__(graph)
        self._ranges = ranges
        self._minimum = self.constant("nystra.least", np.float32(-127))
        self._maximum = self.constant("nystra.most", np.float32(127))
        self._tiny = ""

    def add_switches(self, layers: int) -> None:
        """Add the inputs `SWITCHES` and `OWN_RANGES` for a number of layers."""
        switches = helper.make_tensor_value_info(SWITCHES, TensorProto.BOOL, [layers])
        own_ranges = helper.make_tensor_value_info(OWN_RANGES, TensorProto.BOOL, [])
        self._graph.input.extend([switches, own_ranges])
        self._tiny = self.constant("nystra.tiny", np.finfo(np.float32).tiny)

    def step(self, layer: WeightLayer) -> str:
        """Return the step in which the input of a layer is rounded."""
        step = np.array(self._ranges[layer.source] / 127.0, np.float32)
        return self.constant(f"{layer.node}.step", step)

    def round_input(self, layer: WeightLayer, step: str) -> str:
        """Return the input of a layer rounded in steps."""
        name = layer.node
        scaled = self.op("Div", [layer.source, step], f"{name}.scaled")
        integers = self.op("Round", [scaled], f"{name}.whole")
        limits = [integers, self._minimum, self._maximum]
        clipped = self.op("Clip", limits, f"{name}.clipped")
        return self.op("Mul", [clipped, step], f"{name}.rounded")

    def add_switch(self, layer: WeightLayer, place: int) -> tuple[str, str]:
        """Return the input and the weight of a layer, rounded unless its switch is on."""
        name = layer.node
        step = self.step(layer)
        absolute = self.op("Abs", [layer.source], f"{name}.absolute")
        largest = self.op("ReduceMax", [absolute], f"{name}.largest", keepdims=0)
        own = self.op("Div", [largest, self._maximum], f"{name}.own")
        positive = self.op("Max", [own, self._tiny], f"{name}.positive")
        step = self.op("Where", [OWN_RANGES, positive, step], f"{name}.chosen_step")
        rounded = self.round_input(layer, step)
        weight = self.constant(f"{name}.weight", layer.round_weight())
        exact = self.op(
            "Gather", [SWITCHES, self.constant(f"{name}.place", place)], f"{name}.exact"
        )
        source = self.op("Where", [exact, layer.source, rounded], f"{name}.source")
        return source, self.op("Where", [exact, layer.weight, weight], f"{name}.chosen_weight")
