"""Nodes whose layers round as a file of low precision does; all else of them stays exact."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ..execute.node_builder import NodeBuilder

_FLOAT32_DIGITS = 24
_LEVELS = 127.0


@dataclass(frozen=True, eq=False)
class Rounding:
    """Which layers round, and how.

    Attributes:
        operators: Their operators; each reads its weight as the second input.
        is_exact: Whether a layer stays as it is, by the path of its module, or by the name of its
            node or of its result.
        digits: Binary digits that inputs, weights and results are rounded to; None: inputs and
            weights are rounded to 127 steps of the largest, of each output channel in weights.
    """

    operators: Collection[str]
    is_exact: Callable[[str], bool]
    digits: int | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Rounding:
        return self

    def nodes(self, nodes: Sequence[ir.Node], data: Collection[str]) -> list[ir.Node]:
        """Return nodes that round.

        Args:
            nodes: The nodes, which are not modified.
            data: Names of the values that depend on pixels.
        """
        builder = _RoundingBuilder("rounded/")
        biases = _find_biases(nodes)
        for node in nodes:
            weight = node.inputs[1] if len(node.inputs) > 1 else None
            if weight is None or str(weight.name) in data or not self._rounds(node, biases):
                builder.nodes.append(node)
            else:
                self._round(builder, node, weight)
        return builder.nodes

    def _rounds(self, node: ir.Node, biases: Mapping[str, str]) -> bool:
        parameter = _parameter(node.inputs[1]) if node.op_type in self.operators else None
        if parameter is None:
            return False
        bias = biases.get(str(node.outputs[0].name), "")
        names = {node.name, node.outputs[0].name}
        for name in (str(parameter.name), bias):
            names.add(name.rpartition(".")[0])
        return not any(self.is_exact(str(name)) for name in names)

    def _round(
        self,
        builder: _RoundingBuilder,
        node: ir.Node,
        weight: ir.Value,
    ) -> None:
        source, *rest = node.inputs
        output = node.outputs[0].name
        if self.digits is None:
            axes = _channel_axes(node, weight)
            factors = [builder.steps(source, None), builder.steps(weight, axes)]
        else:
            digits = self.digits
            factors = [builder.digits(source, digits), builder.digits(weight, digits)]
        result = builder.like(node, [*factors, *rest[1:]])
        if self.digits is not None:
            result = builder.digits(result, self.digits)
        result.name = output


class _RoundingBuilder(NodeBuilder):
    def digits(self, value: ir.Value | None, digits: int) -> ir.Value:
        """Return a value rounded to binary digits (T. J. Dekker, 1971: a split by a product)."""
        large = self.op("Mul", value, 2.0 ** (_FLOAT32_DIGITS - digits) + 1.0)
        rest = self.op("Sub", large, value)
        return self.op("Sub", large, rest)

    def steps(self, value: ir.Value | None, axes: list[int] | None) -> ir.Value:
        """Return a value rounded to 127 steps of the largest, along axes or of all."""
        size = self.op("Abs", value)
        reduced = [size] if axes is None else [size, axes]
        largest = self.op("ReduceMax", *reduced)
        step = self.op("Div", largest, _LEVELS)
        smallest = float(np.finfo(np.float32).tiny)
        step = self.op("Max", step, smallest)
        ratio = self.op("Div", value, step)
        steps = self.op("Round", ratio)
        return self.op("Mul", steps, step)


def _channel_axes(node: ir.Node, weight: ir.Value | None) -> list[int]:
    """Return the axes of a weight that are no output channels."""
    if node.op_type == "Conv":
        rank = 4 if weight is None or weight.shape is None else len(weight.shape)
        return [*range(1, rank)]
    transposed = node.attributes.get("transB")
    return [-1 if transposed is not None and transposed.as_int() else -2]


def _parameter(value: ir.Value | None) -> ir.Value | None:
    while value is not None:
        tensor = ir.convenience.get_const_tensor(value)  # held by the graph, or by a node
        if tensor is not None:
            if tensor.dtype == ir.DataType.FLOAT:
                return value
            return None
        node = value.producer()
        value = node.inputs[0] if node is not None and node.inputs else None
    return None


def _find_biases(nodes: Sequence[ir.Node]) -> dict[str, str]:
    """Return the names of the biases that are added to values, by the names of these."""
    added: dict[str, str] = {}
    for node in nodes:
        if node.op_type == "Add" and None not in node.inputs:
            for value, other in (node.inputs, node.inputs[::-1]):
                if _parameter(other) is not None:
                    added[str(value.name)] = str(other.name)  # type: ignore[union-attr]
    return added
