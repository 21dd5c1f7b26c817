"""Linear layers of token maps as convolutions of 1x1, for OpenVINO's CPU plugin.

A token map (B, H, W, C) lies in memory as a map of channels (B, C, H, W) does whose channels are
innermost, which is how the plugin's convolutions take it, and they are faster than its fully
connected layers. Layers of 8-bit integers are left alone: as convolutions OpenVINO 2026.4 gave some
of them the wrong steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.arrays import Array
from .rows import CHANNELS_LAST, follows

_TAKERS = ("NystraOperator", "Reshape")
_FLOATS = ("f32", "f16")
_CHANNELS_FIRST = [0, 3, 1, 2]


def convolve(model: Any) -> int:
    """Put a convolution in place of every linear layer of a token map, in place.

    What follows a layer point by point follows the convolution.

    Args:
        model: A network of OpenVINO whose shapes are known.

    Returns:
        How many layers there were.
    """
    from openvino import opset13 as opset

    def turned(value: Any, order: list[int]) -> Any:
        return opset.transpose(value, opset.constant(np.array(order))).output(0)

    channels: dict[str, Any] = {}
    """Node -> its output with channels first."""
    count = 0
    for node in model.get_ordered_ops():
        name = node.get_name()
        entries = node.inputs()
        sources = [entry.get_source_output().get_node().get_name() for entry in entries]
        if (weight := _weight(node)) is not None and _is_taken_well(node):
            kernel = opset.constant(np.ascontiguousarray(weight[:, :, None, None]))
            if sources[0] in channels:
                image = channels[sources[0]]
            else:
                image = turned(node.input_value(0), _CHANNELS_FIRST)
            convolution = opset.convolution(image, kernel, [1, 1], [0, 0], [0, 0], [1, 1])
            convolution.set_friendly_name(node.get_friendly_name())
            channels[name] = convolution.output(0)
            count += 1
        elif follows(node) and sources[0] in channels:
            entries[0].replace_source_output(channels[sources[0]])
            for entry in entries[1:]:
                value = entry.get_source_output()
                if value.get_partial_shape().rank.get_length() == 1:
                    column = opset.reshape(value, [1, -1, 1, 1], False)
                    entry.replace_source_output(column.output(0))
            node.validate_and_infer_types()
            channels[name] = node.output(0)
        else:
            for entry, source in zip(entries, sources, strict=True):
                if source in channels:
                    entry.replace_source_output(turned(channels[source], CHANNELS_LAST))
    model.validate_nodes_and_infer_types()
    return count


def _is_taken_well(node: Any) -> bool:
    """Whether all that take what a node gives take it with its channels innermost.

    Others would have it turned, which costs more than the convolution saves.
    """
    takers = [entry.get_node() for entry in node.output(0).get_target_inputs()]
    return all(
        _is_taken_well(taker)
        if follows(taker)
        else taker.get_type_name() in _TAKERS or _weight(taker) is not None
        for taker in takers
    )


def _weight(node: Any) -> Array | None:
    """Return the weight (out, in) of a linear layer of a token map; None for every other node."""
    if node.get_type_name() != "MatMul" or node.get_attributes()["transpose_a"]:
        return None
    shape, held = node.input_value(0).get_partial_shape(), node.input_value(1).get_node()
    if not shape.is_static or len(shape) != 4 or held.get_type_name() != "Constant":
        return None
    kind = held.get_output_element_type(0).get_type_name()
    if kind not in _FLOATS or len(held.shape) != 2:
        return None
    weight: Array = held.data
    return weight if node.get_attributes()["transpose_b"] else weight.T
