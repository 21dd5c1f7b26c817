"""Linear layers of token maps as convolutions of 1x1, for OpenVINO's CPU plugin.

A token map (B, H, W, C) lies in memory as a map of channels (B, C, H, W) does whose channels are
innermost, which is the layout of the plugin's convolutions; these are faster than its fully
connected layers. Layers of 8-bit integers are left alone: as convolutions they are hardly faster
(``studies/performance/openvino_int8.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core.arrays import Array
from .rows import CHANNELS_LAST, follows

KernelOf = Callable[[Any], Any]
"""Returns the kernel (out, in, 1, 1) of a linear layer of a token map, None for other nodes."""

_TAKERS = ("NystraOperator", "Reshape")
_FLOATS = ("f32", "f16")
_CHANNELS_FIRST = [0, 3, 1, 2]


def float_kernel(node: Any) -> Any:
    """Return the kernel of a linear layer of floats; see `KernelOf`."""
    from openvino import opset13 as opset

    if not is_linear(node):
        return None
    held = node.input_value(1).get_node()
    kind = held.get_output_element_type(0).get_type_name()
    if held.get_type_name() != "Constant" or kind not in _FLOATS or len(held.shape) != 2:
        return None
    weight: Array = held.data if node.get_attributes()["transpose_b"] else held.data.T
    return opset.constant(np.ascontiguousarray(weight[:, :, None, None])).output(0)


def is_linear(node: Any) -> bool:
    """Whether a node multiplies a token map of four known axes by something."""
    if node.get_type_name() != "MatMul" or node.get_attributes()["transpose_a"]:
        return False
    shape = node.input_value(0).get_partial_shape()
    return bool(shape.is_static and len(shape) == 4)


def convolve(model: Any, kernel_of: KernelOf = float_kernel) -> int:
    """Replace every linear layer of a token map by a convolution, in place.

    Element-wise operations after a layer follow the convolution.

    Args:
        model: A network of OpenVINO whose shapes are known.
        kernel_of: Which layers.

    Returns:
        The number of layers.
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
        if (kernel := kernel_of(node)) is not None and _is_taken_well(node, kernel_of):
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


def _is_taken_well(node: Any, kernel_of: KernelOf) -> bool:
    """Whether all users of a node's output accept it with channels innermost.

    Others need a transposition, which costs more than the convolution saves.
    """
    takers = [entry.get_node() for entry in node.output(0).get_target_inputs()]
    return all(
        _is_taken_well(taker, kernel_of)
        if follows(taker)
        else taker.get_type_name() in _TAKERS or kernel_of(taker) is not None
        for taker in takers
    )
