"""Centers what norms over an image are given, so that images of one color are normalized rightly.

Runtimes sum an image in float32. In one that is constant, the rounding of its mean is all that is
left, and a norm divides it by the root of its epsilon, 0.003: on black images results were off by
up to 7e-3 of the largest value, where PyTorch, which sums in float64, is off by 1e-7. The mean of
an image that was centered before is so small that its rounding does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from .added_nodes import AddedNodes


def center_norms(graph: ir.Graph) -> None:
    """Subtract the mean from the inputs of norms whose statistics are those of the image.

    Args:
        graph: A graph of opset 18 or newer, which is changed in place.
    """
    for node in list(graph):
        if node.domain:
            continue
        source = node.inputs[0] if node.inputs else None
        rank = 0 if source is None else _rank_of(source)
        if source is None or not rank:
            continue
        nodes = AddedNodes()
        if node.op_type == "InstanceNormalization":
            node.replace_input_with(0, _center(nodes, source, range(2, rank)))
        elif node.op_type == "BatchNormalization" and _is_mean_of(node.inputs[3], source):
            axes = [axis for axis in range(rank) if axis != 1]
            centered = _center(nodes, source, axes)
            node.replace_input_with(0, centered)
            node.replace_input_with(3, _mean(nodes, centered, axes, keepdims=0))
        nodes.insert_before(node)


def _rank_of(value: ir.Value) -> int:
    """Return the number of axes of a value; 0 if it is not known."""
    if value.shape is not None:
        return len(value.shape)
    producer = value.producer()  # PyTorch writes a norm of groups so: (B, groups, values)
    return 3 if producer is not None and producer.op_type == "Reshape" else 0


def _is_mean_of(value: ir.Value | None, source: ir.Value) -> bool:
    producer = None if value is None else value.producer()
    if producer is None or producer.op_type != "ReduceMean":
        return False
    return producer.inputs[0] is source


def _center(nodes: AddedNodes, source: ir.Value, axes: Sequence[int]) -> ir.Value:
    mean = _mean(nodes, source, axes, keepdims=1)
    difference = nodes.op("Sub", [source, mean])
    difference.type = source.type
    difference.shape = source.shape
    return difference


def _mean(
    nodes: AddedNodes,
    source: ir.Value,
    axes: Sequence[int],
    *,
    keepdims: int,
) -> ir.Value:
    inputs = [source, nodes.integers(*axes)]
    mean = nodes.op("ReduceMean", inputs, {"keepdims": keepdims})
    mean.type = source.type
    return mean
