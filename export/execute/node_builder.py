"""Makes nodes and constants that are inserted into a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...core.arrays import Array
from .parts import make_constant


class NodeBuilder:
    """Collects new nodes, which read values of a graph.

    Attributes:
        nodes: The new nodes, in order; nodes of the graph may be put among them.
    """

    def __init__(self, prefix: str) -> None:
        """Start without nodes; all names begin with the prefix."""
        self.nodes: list[ir.Node] = []
        self._prefix = prefix
        self._count = 0
        self._constants: dict[tuple[Any, ...], ir.Value] = {}

    def name(self, what: str) -> str:
        """Return a new name."""
        self._count += 1
        return f"{self._prefix}{what}_{self._count}"

    def op(self, operator: str, *inputs: Any, domain: str = "", **attributes: Any) -> ir.Value:
        """Add a node with one result; inputs that are no values become constants."""
        values = [self._as_value(value) for value in inputs]
        attrs = ir.convenience.convert_attributes(attributes)
        return self.node(domain, operator, values, attrs)

    def node(
        self,
        domain: str,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Any,
    ) -> ir.Value:
        """Add a node of given attributes with one result."""
        name = self.name(operator.lower())
        node = ir.Node(domain, operator, inputs, attributes, num_outputs=1, name=name)
        node.outputs[0].name = f"{name}_out"
        self.nodes.append(node)
        return node.outputs[0]

    def like(self, node: ir.Node, inputs: Sequence[ir.Value | None], **changed: Any) -> ir.Value:
        """Add a copy of a node with other inputs, and some attributes changed; None removes one."""
        present = node.attributes.items()
        own = {name: attr for name, attr in present if name not in changed}
        new = {name: value for name, value in changed.items() if value is not None}
        attributes = [*own.values(), *ir.convenience.convert_attributes(new)]
        return self.node(node.domain, node.op_type, inputs, attributes)

    def _as_value(self, value: Any) -> ir.Value | None:
        if value is None or isinstance(value, ir.Value):
            return value
        array = np.asarray(value)
        if array.dtype == np.float64:  # of a number of Python
            array = array.astype(np.float32)
        return self.constant_of(array)

    def constant_of(self, array: Array, dtype: ir.DataType | None = None) -> ir.Value:
        """Return a constant; equal ones are one value.

        Args:
            array: Its elements.
            dtype: Its type, if numpy does not have it.
        """
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self.name("constant")
            tensor = ir.tensor(array, dtype=dtype, name=name)
            self._constants[key] = make_constant(name, tensor)
        return self._constants[key]
