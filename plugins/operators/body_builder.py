"""Writes the body of an operator: standard ONNX nodes with names that no other body uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..errors import NystraError
from .schema import DOMAIN, PLUGIN_ATTRIBUTES, OperatorSchema

OPSETS = (18, 19, 20)
"""The opsets of ONNX that the bodies are written for."""


class BodyBuilder:
    """Collects the nodes of one function body; every method returns the name of a tensor.

    TensorRT keeps the tensors of all functions in one flat map, so each name starts with the
    operator's. Constants are TensorProto values and written once.
    """

    def __init__(self, schema: OperatorSchema, opset: int) -> None:
        """Start the body of an operator.

        Raises:
            NystraError: no body is written for this opset.
        """
        if opset not in OPSETS:
            raise NystraError(
                f"{schema.name}: no body for opset {opset}; expected one of "
                f"{', '.join(map(str, OPSETS))}"
            )
        self.schema = schema
        self.opset = opset
        self.inputs = [self._named(name) for name in schema.inputs]
        self._outputs = [self._named(name) for name in schema.outputs]
        self._nodes: list[onnx.NodeProto] = []
        self._known: dict[tuple[str, bytes], str] = {}

    def _named(self, name: str) -> str:
        return f"{self.schema.name}_{name}"

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Return the one output of a node, which is added unless there is an equal one."""
        key = (f"{op_type} {attributes}", "\n".join(inputs).encode())
        if key in self._known:
            return self._known[key]
        output = self._known[key] = self._named(f"{op_type}_{len(self._nodes)}")
        self._nodes.append(helper.make_node(op_type, list(inputs), [output], **attributes))
        return output

    def _constant(self, value: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
        key = (f"{value.dtype}{value.shape}", value.tobytes())
        if key not in self._known:
            tensor = numpy_helper.from_array(value, self._named(f"constant_{len(self._nodes)}"))
            self._known[key] = self.op("Constant", value=tensor)
        return self._known[key]

    def ints(self, value: int | Sequence[int]) -> str:
        """Return an int64 constant: a scalar or a vector."""
        return self._constant(np.asarray(value, dtype=np.int64))

    def number(self, value: float) -> str:
        """Return a float32 scalar constant."""
        return self._constant(np.asarray(value, dtype=np.float32))

    def attribute(self, name: str) -> str:
        """Return the operator's attribute of that name: an int64 or float32 scalar."""
        key = ("attribute", name.encode())
        if key in self._known:
            return self._known[key]
        kind = next(a.kind for a in self.schema.attributes if a.name == name)
        output = self._named(name)
        node = helper.make_node("Constant", [], [output])
        field, proto = (
            ("value_int", onnx.AttributeProto.INT)
            if kind == "int"
            else ("value_float", onnx.AttributeProto.FLOAT)
        )
        node.attribute.append(
            onnx.AttributeProto(name=field, ref_attr_name=name, type=proto),
        )
        self._nodes.append(node)
        self._known[key] = (
            output if kind == "int" else self.op("Cast", output, to=TensorProto.FLOAT)
        )
        return self._known[key]

    def is_on(self, name: str) -> str:
        """Return whether the INT attribute of that name is 1: a bool scalar."""
        return self.op("Equal", self.attribute(name), self.ints(1))

    def float32(self, tensor: str) -> str:
        """Return the tensor cast to float32."""
        return self.op("Cast", tensor, to=TensorProto.FLOAT)

    def reduce(self, op_type: str, tensor: str, axis: int | None) -> str:
        """Return a reduction along one axis, or along all of them, that keeps the dimensions."""
        if axis is None:
            return self.op(op_type, tensor, keepdims=1)
        return self.op(op_type, tensor, self.ints([axis]), keepdims=1)

    def size(self, tensor: str, axis: int) -> str:
        """Return the size of one axis, an int64 scalar."""
        return self.op("Gather", self.op("Shape", tensor), self.ints(axis))

    def shape(self, *sizes: str | int) -> str:
        """Return a shape, an int64 vector, from scalars and numbers (-1: what is left)."""
        parts = [
            self.ints([size]) if isinstance(size, int) else self.op("Reshape", size, self.ints([1]))
            for size in sizes
        ]
        return self.op("Concat", *parts, axis=0)

    def reshape(self, tensor: str, *sizes: str | int) -> str:
        """Return the tensor in another shape, given by scalars and numbers."""
        if all(isinstance(size, int) for size in sizes):
            return self.op("Reshape", tensor, self.ints([int(size) for size in sizes]))
        return self.op("Reshape", tensor, self.shape(*sizes))

    def count(self, size: str) -> str:
        """Return 0, 1, ..., size - 1."""
        return self.op("Range", self.ints(0), size, self.ints(1))

    def swap(self, tensor: str, rank: int) -> str:
        """Return the transpose of the last two axes."""
        perm = [*range(rank - 2), rank - 1, rank - 2]
        return self.op("Transpose", tensor, perm=perm)

    def finish(self, result: str) -> onnx.FunctionProto:
        """Cast the result to the type of the first input, and return the function."""
        self._nodes.append(
            helper.make_node("CastLike", [result, self.inputs[0]], [self._outputs[0]])
        )
        return helper.make_function(
            DOMAIN,
            self.schema.name,
            self.inputs,
            self._outputs,
            self._nodes,
            [helper.make_opsetid("", self.opset)],
            attributes=[*(a.name for a in self.schema.attributes), *PLUGIN_ATTRIBUTES],
            doc_string=self.schema.doc,
        )
