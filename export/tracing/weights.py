"""Stores the weights of a graph in the form that its nodes read."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir


def squeeze_weights(model: ir.Model) -> None:
    """Store weights that the network squeezes in their squeezed shape, in place.

    The optimizer computes small constants only. A large weight would stay the input of a Squeeze,
    and neither the conversion to low precision nor other programs would recognize it as a weight.
    """
    for node in list(model.graph):
        weight = node.inputs[0] if node.op_type == "Squeeze" else None
        if weight is None or weight.const_value is None or len(weight.uses()) != 1:
            continue
        values = _squeezed(node, weight.const_value.numpy())
        if values is None:
            continue
        weight.const_value = ir.Tensor(values, name=weight.name)
        weight.shape = ir.Shape(values.shape)
        ir.convenience.replace_all_uses_with(node.outputs[0], weight)


def _squeezed(node: ir.Node, values: Any) -> Any:
    """Return the squeezed values, or None if the axes are no constant."""
    places = node.inputs[1] if len(node.inputs) == 2 else None
    axes = None if places is None else ir.convenience.get_const_tensor(places)
    return None if axes is None else values.squeeze(tuple(axes.numpy().reshape(-1)))
