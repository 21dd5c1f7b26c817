"""Sums of token maps as sums of rows, for OpenVINO's CPU plugin.

Between layers the plugin keeps what has four axes with its second axis innermost, as convolutions
want it: sums of token maps (B, H, W, C) too, for whose norms and linear layers every map is then
turned and turned back, at every run. Two axes, a token a row, have one order only.
"""

from __future__ import annotations

from typing import Any

_CHANNELS_LAST = [0, 2, 3, 1]
_ELEMENTWISE = ("Add", "Multiply", "Gelu", "Relu")


def sum_rows(model: Any) -> int:
    """Put every sum of two token maps into two axes, in place; return how many there are.

    A token map is what a linear layer gives, or a map of channels turned into one, and what is
    computed from it element by element.

    Args:
        model: A network of OpenVINO whose shapes are known.
    """
    from openvino import opset13 as opset

    tokens: set[str] = set()
    count = 0
    for node in model.get_ordered_ops():
        if not _gives_tokens(node, tokens):
            continue
        tokens.add(node.get_friendly_name())
        shape = _shape_of_sum(node)
        if shape is None:
            continue
        rows = [opset.reshape(node.input_value(i), [-1, shape[-1]], False) for i in (0, 1)]
        summed = opset.reshape(opset.add(*rows), list(shape), False)
        summed.set_friendly_name(node.get_friendly_name())
        node.output(0).replace(summed.output(0))
        count += 1
    return count


def _gives_tokens(node: Any, tokens: set[str]) -> bool:
    kind = node.get_type_name()
    if kind == "Transpose":
        order = node.input_value(1).get_node()
        return order.get_type_name() == "Constant" and list(order.data) == _CHANNELS_LAST
    if kind in _ELEMENTWISE:
        sources = (value.get_node().get_friendly_name() for value in node.input_values())
        return not tokens.isdisjoint(sources)
    return bool(kind == "MatMul")


def _shape_of_sum(node: Any) -> tuple[int, ...] | None:
    """Return the shape of a sum of two maps of the same shape; None for anything else."""
    if node.get_type_name() != "Add":
        return None
    first, second = (node.input_value(i).get_partial_shape() for i in (0, 1))
    if not first.is_static or first != second or len(first) != 4:
        return None
    return tuple(first.to_shape())
