"""A float32 model that rounds where an int8 model does.

It is independent of the quantized file: scales and rounded weights are computed here, not read from
that file. With a switch for every layer it is also used to keep the budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..precision.cast import replace_nodes
from .layers import WeightLayer

SWITCHES = "nystra.exact"
"""The extra input of a model with switches: one boolean per layer, true if it stays float32."""

OWN_RANGES = "nystra.own_ranges"
"""Another one: if true, a map is rounded in 127 steps of its largest value, not of `ranges`."""


def rounded_copy(
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
    graph, places = copied.graph, {layer.node: place for place, layer in enumerate(layers)}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    graph.initializer.append(numpy_helper.from_array(np.array(-127, np.float32), "nystra.least"))
    graph.initializer.append(numpy_helper.from_array(np.array(127, np.float32), "nystra.most"))
    if switches:
        graph.input.append(helper.make_tensor_value_info(SWITCHES, TensorProto.BOOL, [len(layers)]))
        graph.input.append(helper.make_tensor_value_info(OWN_RANGES, TensorProto.BOOL, []))
        tiny = np.array(np.finfo(np.float32).tiny, np.float32)
        graph.initializer.append(numpy_helper.from_array(tiny, "nystra.tiny"))
    written: list[onnx.NodeProto] = []

    def add(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        written.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(values: np.ndarray, name: str) -> str:
        graph.initializer.append(numpy_helper.from_array(values, name))
        return name

    for node in graph.node:
        place = places.get(node.name)
        if place is not None:
            layer = layers[place]
            step = constant(np.array(ranges[layer.source] / 127.0, np.float32), f"{node.name}.step")
            if switches:
                absolute = add("Abs", [layer.source], f"{node.name}.absolute")
                largest = add("ReduceMax", [absolute], f"{node.name}.largest", keepdims=0)
                own = add("Div", [largest, "nystra.most"], f"{node.name}.own")
                some = add("Max", [own, "nystra.tiny"], f"{node.name}.some")
                step = add("Where", [OWN_RANGES, some, step], f"{node.name}.taken")
            scaled = add("Div", [layer.source, step], f"{node.name}.scaled")
            rounded = add("Round", [scaled], f"{node.name}.whole")
            held = add("Clip", [rounded, "nystra.least", "nystra.most"], f"{node.name}.held")
            source = add("Mul", [held, step], f"{node.name}.rounded")
            if switches:
                weight = constant(layer.rounded(), f"{node.name}.weight")
                index = constant(np.array(place), f"{node.name}.place")
                exact = add("Gather", [SWITCHES, index], f"{node.name}.exact")
                source = add("Where", [exact, layer.source, source], f"{node.name}.source")
                weight = add("Where", [exact, layer.weight, weight], f"{node.name}.chosen")
                node.input[1] = weight
            else:
                stored[layer.weight].CopyFrom(
                    numpy_helper.from_array(layer.rounded(), layer.weight)
                )
            node.input[0] = source
        written.append(node)
    replace_nodes(graph, written)
    return copied
