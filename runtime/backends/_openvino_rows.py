"""Token maps as rows, for OpenVINO's CPU plugin.

Between layers the plugin keeps what has four axes with its second axis innermost, as convolutions
want it: sums of token maps (B, H, W, C) too, for whose norms and linear layers every map is then
turned and turned back, at every run. And it computes the bias, the function and the rounding after
a linear layer of 8-bit integers in passes of their own. Two axes, a token a row, have one order
only, and such a layer does what follows it by itself.
"""

from __future__ import annotations

from typing import Any

_CHANNELS_LAST = [0, 2, 3, 1]
_ELEMENTWISE = ("Add", "Subtract", "Multiply", "Gelu", "Relu", "Convert", "FakeQuantize")
_INTEGERS = ("i8", "u8")


def compute_rows(model: Any) -> int:
    """Let a network compute token maps as rows, in place; return how many nodes of it do.

    A token map is what a linear layer gives, or a map of channels turned into one, and what is
    computed from it element by element. Rows are sums of two such maps, linear layers with 8-bit
    weights, and what is computed from rows element by element.

    Args:
        model: A network of OpenVINO whose shapes are known.
    """
    from openvino import opset13 as opset

    tokens: set[str] = set()
    rows: set[str] = set()
    for node in model.get_ordered_ops():
        name = node.get_friendly_name()
        if _gives_tokens(node, tokens):
            tokens.add(name)
        inputs = _inputs_as_rows(node, tokens, rows)
        if inputs:
            rows.add(name)
        for entry in node.inputs():
            value = entry.get_source_output()
            made = value.get_node().get_friendly_name() in rows
            if made == (entry.get_index() in inputs):
                continue
            shape = value.get_shape()
            turned = opset.reshape(value, [-1, shape[-1]] if not made else list(shape), False)
            entry.replace_source_output(turned.output(0))
    model.validate_nodes_and_infer_types()
    return len(rows)


def _gives_tokens(node: Any, tokens: set[str]) -> bool:
    kind = node.get_type_name()
    if kind == "Transpose":
        order = node.input_value(1).get_node()
        return order.get_type_name() == "Constant" and list(order.data) == _CHANNELS_LAST
    if kind in _ELEMENTWISE:
        return not tokens.isdisjoint(_sources(node))
    return bool(kind == "MatMul")


def _inputs_as_rows(node: Any, tokens: set[str], rows: set[str]) -> tuple[int, ...]:
    """Return which inputs of a node are to be rows; none where it is not computed on them."""
    kind, name = node.get_type_name(), node.get_friendly_name()
    if name not in tokens or not _is_map(node.output(0)):
        return ()
    shapes = [value.get_partial_shape() for value in node.input_values()]
    if kind == "MatMul":
        whole = _is_map(node.input_value(0)) and not node.get_attributes()["transpose_a"]
        return (0,) if whole and _is_integer(node.input_value(1)) else ()
    if kind == "Add" and shapes[0] == shapes[1]:
        return (0, 1)
    if kind in _ELEMENTWISE and _sources(node)[0] in rows:
        others = (shape.rank for shape in shapes[1:])
        return (0,) if all(rank.is_static and rank.get_length() <= 1 for rank in others) else ()
    return ()


def _sources(node: Any) -> list[str]:
    return [value.get_node().get_friendly_name() for value in node.input_values()]


def _is_map(value: Any) -> bool:
    shape = value.get_partial_shape()
    return shape.is_static and len(shape) == 4


def _is_integer(weight: Any) -> bool:
    """Whether a weight of two axes comes from a constant of 8-bit integers."""
    node = weight.get_node()
    while node.get_type_name() in ("Multiply", "Subtract", "Convert"):
        node = node.input_value(0).get_node()
    kind = node.get_output_element_type(0).get_type_name()
    return node.get_type_name() == "Constant" and kind in _INTEGERS and len(node.shape) == 2
