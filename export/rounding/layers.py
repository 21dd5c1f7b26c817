"""Nodes whose layers round as a file of low precision does; all else of them stays exact."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

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
        written: list[ir.Node] = []
        biases = _biases(nodes)
        for node in nodes:
            weight = node.inputs[1] if len(node.inputs) > 1 else None
            held = None if node.op_type not in self.operators else _parameter(weight)
            if weight is None or held is None or str(weight.name) in data:
                written.append(node)
                continue
            bias = biases.get(str(node.outputs[0].name), "")
            modules = {name.rpartition(".")[0] for name in (str(held.name), bias)}
            names = {*modules, node.name, node.outputs[0].name}
            if any(self.is_exact(str(name)) for name in names):
                written.append(node)
                continue
            made = _Writer(f"{node.outputs[0].name}/rounded", written)
            source, *rest = node.inputs
            if self.digits is not None:
                read = [made.digits(source, self.digits), made.digits(weight, self.digits)]
            else:
                read = [made.steps(source, None), made.steps(weight, _channel_axes(node, weight))]
            result = ir.Value(name=f"{node.outputs[0].name}/exact")
            outputs = [node.outputs[0]] if self.digits is None else [result]
            written.append(
                ir.Node(
                    node.domain,
                    node.op_type,
                    [*read, *rest[1:]],
                    list(node.attributes.values()),
                    outputs=[ir.Value(name=value.name) for value in outputs],
                )
            )
            if self.digits is not None:
                made.digits(result, self.digits, str(node.outputs[0].name))
        return written


class _Writer:
    def __init__(self, prefix: str, nodes: list[ir.Node]) -> None:
        self._prefix, self._nodes, self._count = prefix, nodes, 0

    def digits(self, value: ir.Value | None, digits: int, name: str = "") -> ir.Value:
        """Return a value rounded to binary digits (T. J. Dekker, 1971: a split by a product)."""
        large = self.op("Mul", value, self.constant(2.0 ** (_FLOAT32_DIGITS - digits) + 1.0))
        return self.op("Sub", large, self.op("Sub", large, value), name=name)

    def steps(self, value: ir.Value | None, axes: list[int] | None) -> ir.Value:
        size = self.op("Abs", value)
        reduced = [size] if axes is None else [size, self.constant(axes)]
        largest = self.op("ReduceMax", *reduced)
        step = self.op("Div", largest, self.constant(_LEVELS))
        step = self.op("Max", step, self.constant(float(np.finfo(np.float32).tiny)))
        return self.op("Mul", self.op("Round", self.op("Div", value, step)), step)

    def constant(self, number: float | list[int]) -> ir.Value:
        array = np.array(number, np.int64 if isinstance(number, list) else np.float32)
        self._count += 1
        tensor = ir.tensor(array)
        return ir.Value(name=f"{self._prefix}_{self._count}", const_value=tensor)

    def op(self, operator: str, *inputs: ir.Value | None, name: str = "") -> ir.Value:
        self._count += 1
        output = ir.Value(name=name or f"{self._prefix}_{self._count}")
        self._nodes.append(ir.Node("", operator, inputs, (), outputs=[output]))
        return output


def _channel_axes(node: ir.Node, weight: ir.Value | None) -> list[int]:
    """Return the axes of a weight that are no output channels."""
    if node.op_type == "Conv":
        rank = 4 if weight is None or weight.shape is None else len(weight.shape)
        return [*range(1, rank)]
    turned = node.attributes.get("transB")
    return [-1 if turned is not None and turned.as_int() else -2]


def _parameter(value: ir.Value | None) -> ir.Value | None:
    while value is not None:
        tensor = ir.convenience.get_const_tensor(value)  # held by the graph, or by a node
        if tensor is not None:
            return value if tensor.dtype == ir.DataType.FLOAT else None
        node = value.producer()
        value = node.inputs[0] if node is not None and node.inputs else None
    return None


def _biases(nodes: Sequence[ir.Node]) -> dict[str, str]:
    """Return the names of the biases that are added to values, by the names of these."""
    added: dict[str, str] = {}
    for node in nodes:
        if node.op_type == "Add" and None not in node.inputs:
            for value, other in (node.inputs, node.inputs[::-1]):
                if _parameter(other) is not None:
                    added[str(value.name)] = str(other.name)  # type: ignore[union-attr]
    return added
