"""Token maps as rows, for OpenVINO's CPU plugin.

Between layers the plugin stores tensors of four axes with the second axis innermost, the layout of
convolutions, also sums of token maps (B, H, W, C): their norms and layers then transpose every map
and transpose it back, in every run. After a linear layer of 8-bit integers it also computes the
bias, the activation and the rounding in separate passes. Tensors of two axes, one row per token,
have one layout only, and such a layer includes what follows it.
"""

from __future__ import annotations

from typing import Any

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
        whole = _shape(node.output(0), {}) if inputs else None
        for index, entry in enumerate(node.inputs()):
            value = entry.get_source_output()
            map_shape = rows.get(value.get_node().get_name())
            if (map_shape is None) == (index in inputs):
                shape = [-1, value.get_shape()[-1]] if map_shape is None else list(map_shape)
                entry.replace_source_output(opset.reshape(value, shape, False).output(0))
        if whole is None:
            continue
        count += 1
        rows[name] = whole
        if node.get_type_name() == "Concat":
            joined = opset.concat(node.input_values(), 1)
            joined.set_friendly_name(node.get_friendly_name())
            node.output(0).replace(joined.output(0))
            tokens.add(joined.get_name())
            rows[joined.get_name()] = whole
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
    """Return which inputs of a node become rows; none if the node is not computed on rows."""
    kind, values = node.get_type_name(), node.input_values()
    shapes = [_shape(value, rows) for value in values]
    maps = [shape is not None and len(shape) == 4 for shape in shapes]
    if not maps[0]:
        return ()
    if kind == "MatMul":
        whole = not node.get_attributes()["transpose_a"]
        return (0,) if whole and _is_integer(values[1]) else ()
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
    """Whether a weight of two axes comes from a constant of 8-bit integers."""
    node = weight.get_node()
    while node.get_type_name() in ("Multiply", "Subtract", "Convert"):
        node = node.input_value(0).get_node()
    kind = node.get_output_element_type(0).get_type_name()
    return node.get_type_name() == "Constant" and kind in _INTEGERS and len(node.shape) == 2
