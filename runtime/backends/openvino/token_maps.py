"""Token maps as rows, and their linear layers as convolutions of 1x1, for OpenVINO's CPU plugin.

Between layers the plugin stores tensors of four axes with the second axis innermost, the layout of
convolutions, also sums of token maps (B, H, W, C): their norms and layers then transpose every map
and transpose it back, in every run. After a linear layer of 8-bit integers it also computes the
bias, the activation and the rounding in separate passes. Tensors of two axes, one row per token,
have one layout only, and such a layer includes what follows it.

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

CHANNELS_LAST = [0, 2, 3, 1]
"""The order of axes that turns a map of channels into a token map."""

_POINTWISE = ("Add", "Subtract", "Multiply", "Gelu", "Relu", "Convert", "FakeQuantize")
_INTEGERS = ("i8", "u8")

Shape = tuple[int, ...]


def compute_rows(model: Any) -> int:
    """Let a network compute token maps as rows, in place; return the number of nodes that do.

    A token map is the output of a linear layer, or a transposed map of channels, or computed from
    one element by element. Rows are sums of two such maps, joined channels of some, linear layers
    with 8-bit weights, and what is computed from rows point by point.

    Args:
        model: A network of OpenVINO whose shapes are known.
    """
    from openvino import opset13 as opset

    tokens: set[str] = set()
    rows: dict[str, Shape] = {}  # node -> shape of the map that it gives as rows
    count = 0
    for node in model.get_ordered_ops():
        name = node.get_name()
        if _gives_tokens(node, tokens):
            tokens.add(name)
        inputs = _inputs_as_rows(node, rows) if name in tokens else ()
        output_shape = _shape(node.output(0), {}) if inputs else None
        for index, entry in enumerate(node.inputs()):
            value = entry.get_source_output()
            map_shape = rows.get(value.get_node().get_name())
            if (map_shape is None) == (index in inputs):
                shape = [-1, value.get_shape()[-1]] if map_shape is None else list(map_shape)
                entry.replace_source_output(opset.reshape(value, shape, False).output(0))
        if output_shape is None:
            continue
        count += 1
        rows[name] = output_shape
        if node.get_type_name() == "Concat":
            joined = opset.concat(node.input_values(), 1)
            joined.set_friendly_name(node.get_friendly_name())
            node.output(0).replace(joined.output(0))
            tokens.add(joined.get_name())
            rows[joined.get_name()] = output_shape
        else:
            node.validate_and_infer_types()
    model.validate_nodes_and_infer_types()
    return count


def _gives_tokens(node: Any, tokens: set[str]) -> bool:
    kind = node.get_type_name()
    if kind == "Transpose":
        order = node.input_value(1).get_node()
        return order.get_type_name() == "Constant" and list(order.data) == CHANNELS_LAST
    if kind in (*_POINTWISE, "Concat"):
        return any(v.get_node().get_name() in tokens for v in node.input_values())
    return bool(kind == "MatMul")


def _inputs_as_rows(node: Any, rows: dict[str, Shape]) -> tuple[int, ...]:
    kind, values = node.get_type_name(), node.input_values()
    shapes = [_shape(value, rows) for value in values]
    maps = [shape is not None and len(shape) == 4 for shape in shapes]
    if not maps[0]:
        return ()
    if kind == "MatMul":
        straight = not node.get_attributes()["transpose_a"]
        return (0,) if straight and _is_integer(values[1]) else ()
    if kind == "Concat":
        joins_channels = all(maps) and node.get_attributes()["axis"] in (3, -1)
        return tuple(range(len(maps))) if joins_channels else ()
    if kind == "Add" and shapes[0] == shapes[1]:
        return (0, 1)
    return (0,) if follows(node) and values[0].get_node().get_name() in rows else ()


def follows(node: Any) -> bool:
    """Whether a node is computed from its first input by element, or by channel."""
    ranks = [value.get_partial_shape().rank for value in node.input_values()[1:]]
    return node.get_type_name() in _POINTWISE and all(
        rank.is_static and rank.get_length() <= 1 for rank in ranks
    )


def _shape(value: Any, rows: dict[str, Shape]) -> Shape | None:
    """Return the shape of a value, for rows that of their map; None if it is unknown."""
    name = value.get_node().get_name()
    if name in rows:
        return rows[name]
    shape = value.get_partial_shape()
    return tuple(shape.to_shape()) if shape.is_static else None


def _is_integer(weight: Any) -> bool:
    node = weight.get_node()
    while node.get_type_name() in ("Multiply", "Subtract", "Convert"):
        node = node.input_value(0).get_node()
    kind = node.get_output_element_type(0).get_type_name()
    return node.get_type_name() == "Constant" and kind in _INTEGERS and len(node.shape) == 2


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
    constant = node.input_value(1).get_node()
    kind = constant.get_output_element_type(0).get_type_name()
    if constant.get_type_name() != "Constant" or kind not in _FLOATS or len(constant.shape) != 2:
        return None
    weight: Array = constant.data if node.get_attributes()["transpose_b"] else constant.data.T
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

    def turn(value: Any, order: list[int]) -> Any:
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
                image = turn(node.input_value(0), _CHANNELS_FIRST)
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
                    entry.replace_source_output(turn(channels[source], CHANNELS_LAST))
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
