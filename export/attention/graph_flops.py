"""The number of operations of an ONNX graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

Shapes = Mapping[str, tuple[int, ...]]

_PRODUCTS = ("MatMul", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "Gemm", "FusedGemm")
_CONVOLUTIONS = ("Conv", "ConvInteger", "QLinearConv", "FusedConv", "DeformConv")


def graph_flops(nodes: Iterable[ir.Node], shapes: Shapes) -> int:
    """Return the operations of the matrix products and convolutions among nodes.

    2 for each multiply-add, as PyTorch counts them. Those of subgraphs and local functions, and of
    nodes without a known shape, are not counted.

    Args:
        nodes: Nodes of a graph.
        shapes: Shapes of its tensors, by name.
    """
    return 2 * sum(_products(node, shapes) for node in nodes)


def _products(node: ir.Node, shapes: Shapes) -> int:
    taken = [() if value is None else shapes.get(str(value.name), ()) for value in node.inputs]
    made = math.prod(shapes.get(str(node.outputs[0].name), (0,)))
    kind = node.op_type
    if kind in _PRODUCTS and taken[0]:
        across = node.attributes.get("transA")
        return made * taken[0][-2 if across is not None and across.as_int() else -1]
    if kind in _CONVOLUTIONS or kind == "ConvTranspose":
        weight = taken[3] if kind == "QLinearConv" else taken[1]
        if len(weight) < 3:
            return 0
        pixels = math.prod(taken[0]) if kind == "ConvTranspose" else made
        return pixels * math.prod(weight[1:])
    if kind == "Einsum" and len(taken) > 1:
        return made * _contracted(node.attributes["equation"].as_string(), taken)
    if kind in ("Attention", "MultiHeadAttention") and len(taken) > 2 and len(taken[1]) > 2:
        return 2 * math.prod(taken[0]) * taken[1][-2]
    return 0


def _contracted(equation: str, taken: Sequence[tuple[int, ...]]) -> int:
    left, _, right = equation.replace(" ", "").partition("->")
    sides: dict[str, int] = {}
    for labels, shape in zip(left.split(","), taken, strict=True):
        before, _, after = labels.partition("...")
        sides |= zip(before, shape, strict=False)
        sides |= zip(reversed(after), reversed(shape), strict=False)
    return math.prod(side for label, side in sides.items() if label not in right)
