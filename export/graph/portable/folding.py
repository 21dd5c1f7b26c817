"""Evaluates nodes whose inputs are constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

if TYPE_CHECKING:
    from .static_graph import Constant, Tensor

_SMALL = 2**15
"""Most elements of a constant that is larger than its operands."""

_KEPT = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Not folded, so that the data of the file stays in low precision."""


def folded(
    node: onnx.NodeProto, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], opset: int
) -> list[Constant] | None:
    """Return the outputs of a node, or None if it stays in the file.

    Floating-point results larger than their operands are not stored: a window bias stays a small
    table, with the nodes that expand it. Integers and booleans are always evaluated.

    Args:
        node: The node.
        inputs: What is known of its inputs; None: omitted.
        outputs: Type and shape of its outputs.
        opset: The opset of the node.
    """
    given = [tensor for tensor in inputs if tensor is not None]
    if node.op_type in _KEPT or any(tensor.value is None for tensor in given):
        return None
    if node.op_type == "Constant":
        return [_constant(node)]
    before = sum(math.prod(tensor.shape) for tensor in given)
    if any(
        _is_float(tensor) and math.prod(tensor.shape) > max(before, _SMALL) for tensor in outputs
    ):
        return None
    from onnx.reference import ReferenceEvaluator

    feeds = {
        name: tensor.value
        for name, tensor in zip(node.input, inputs, strict=True)
        if tensor is not None
    }
    results = ReferenceEvaluator(node, opsets={"": opset}).run(None, feeds)
    return [
        np.asarray(result, helper.tensor_dtype_to_np_dtype(tensor.kind)).reshape(tensor.shape)
        for result, tensor in zip(results, outputs, strict=True)
    ]


def _constant(node: onnx.NodeProto) -> Constant:
    (attribute,) = node.attribute
    value = helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.TENSOR:
        return onnx.numpy_helper.to_array(value)
    kinds: dict[str, Any] = {"value_float": np.float32, "value_floats": np.float32}
    return np.array(value, kinds.get(attribute.name, np.int64))


def _is_float(tensor: Tensor) -> bool:
    return helper.tensor_dtype_to_np_dtype(tensor.kind).kind not in "biu"
