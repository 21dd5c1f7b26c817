"""Writes the body of an operator: standard ONNX nodes with names that no other body uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...core.errors import NystraError
from ..domain import DOMAIN
from .schema import PLUGIN_ATTRIBUTES, REVISION, VERSION, OperatorSchema

OPSETS = (18, 19, 20, 21, 22, 23, 24, 25)
"""The opsets of ONNX that the bodies are written for."""


class BodyBuilder:
    """Collects the nodes of one function body; every method returns the name of a tensor.

    TensorRT keeps the tensors of all functions in one flat map, so each name starts with the
    operator's. Constants are TensorProto values and written once.

    Attributes:
        by_rows: Exact attention holds the scores of one row of queries of every window at a time,
            in a Loop, which is slower where an engine would fuse attention.
        values: Of a body of one node alone, its attributes, which are constants there.
        stepped: Sizes are known while the body is written, and elements are moved by slices,
            reshapes and transposes of four axes at most, for engines that support no others;
            otherwise by one Gather. A subclass that knows the sizes sets it.
        fused: Exact attention is one node, whose mask holds all that is added to the scores.
        served: The attributes of every node that the body is for; none: it is for any node.
    """

    stepped = False
    fused = False

    def __init__(
        self,
        schema: OperatorSchema,
        opset: int,
        by_rows: bool = False,
        values: Mapping[str, Any] | None = None,
        served: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        if opset not in OPSETS:
            raise NystraError(
                f"{schema.name}: no body for opset {opset}; expected one of "
                f"{', '.join(map(str, OPSETS))}"
            )
        self.schema = schema
        self.opset = opset
        self.by_rows = by_rows
        self.values = values
        self.served = served
        self.inputs = [self._name(name) for name in schema.inputs]
        self._outputs = [self._name(name) for name in schema.outputs]
        self._nodes: list[onnx.NodeProto] = []
        self._numbers = count()
        self._values_by_content: dict[tuple[str, bytes], str] = {}
        self._top = self._nodes  # constants go here from inside loops too
        self._fixed: dict[tuple[str, bytes], str] = {}

    def _name(self, name: str) -> str:
        return f"{self.schema.name}_{name}"

    def _fresh(self, what: str) -> str:
        return self._name(f"{what}_{next(self._numbers)}")

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Return the only output of a node, which is added unless an equal one exists."""
        key = (f"{op_type} {attributes}", "\n".join(inputs).encode())
        if key in self._values_by_content:
            return self._values_by_content[key]
        output = self._values_by_content[key] = self._fresh(op_type)
        self._nodes.append(helper.make_node(op_type, list(inputs), [output], **attributes))
        return output

    def call(self, operator: str, tensor: str, **attributes: int) -> str:
        """Return the only output of a node of nystra, whose body is a function of its own.

        TensorRT reads an attribute that a function passes on to another one as 0, so its attributes
        are numbers.
        """
        output = self._fresh(operator)
        every: dict[str, Any] = {**attributes, "revision": REVISION, **PLUGIN_ATTRIBUTES}
        self._nodes.append(helper.make_node(operator, [tensor], [output], domain=DOMAIN, **every))
        return output

    def ops(self, op_type: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Return the outputs of a node that has several."""
        names = [self._fresh(op_type) for _ in range(outputs)]
        self._nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names

    def constant(self, value: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
        """Return a constant of that type, shape and value."""
        key = (f"{value.dtype}{value.shape}", value.tobytes())
        if key not in self._fixed:
            output = self._fixed[key] = self._fresh("constant")
            tensor = numpy_helper.from_array(value, output)
            self._top.append(helper.make_node("Constant", [], [output], value=tensor))
        return self._fixed[key]

    def ints(self, value: int | Sequence[int]) -> str:
        """Return an int64 constant: a scalar or a vector."""
        return self.constant(np.asarray(value, dtype=np.int64))

    def number(self, value: float) -> str:
        """Return a float32 scalar constant."""
        return self.constant(np.asarray(value, dtype=np.float32))

    def attribute(self, name: str) -> str:
        """Return the operator's attribute of that name: an int64 or float32 scalar."""
        key = ("attribute", name.encode())
        if key in self._fixed:
            return self._fixed[key]
        kind = next(a.kind for a in self.schema.attributes if a.name == name)
        if self.values is not None:
            return self.constant(
                np.array(self.values[name], np.int64 if kind == "int" else np.float32)
            )
        output = self._fixed[key] = self._name(name)
        node = helper.make_node("Constant", [], [output])
        field, proto = (
            ("value_int", onnx.AttributeProto.INT)
            if kind == "int"
            else ("value_float", onnx.AttributeProto.FLOAT)
        )
        node.attribute.append(
            onnx.AttributeProto(name=field, ref_attr_name=name, type=proto),
        )
        self._top.append(node)
        if kind == "float":
            wide = self._fixed[key] = self._fresh("Cast")
            self._top.append(helper.make_node("Cast", [output], [wide], to=TensorProto.FLOAT))
        return self._fixed[key]

    def is_off(self, name: str) -> bool:
        """Return whether the INT attribute of that name is known to be 0."""
        return self.values is not None and self.values[name] == 0

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
        """Return a shape, an int64 vector, from scalars and numbers (-1: inferred)."""
        parts = [
            self.ints([size]) if isinstance(size, int) else self.op("Reshape", size, self.ints([1]))
            for size in sizes
        ]
        return self.op("Concat", *parts, axis=0)

    def reshape(self, tensor: str, *sizes: str | int) -> str:
        """Return the tensor in another shape, of scalars and numbers."""
        if all(isinstance(size, int) for size in sizes):
            return self.op("Reshape", tensor, self.ints([int(size) for size in sizes]))
        return self.op("Reshape", tensor, self.shape(*sizes))

    def read_size(self, size: str) -> int:
        """Return the value of an int64 scalar, if ``stepped`` is set."""
        raise NotImplementedError(f"{self.schema.name}: {size} is not known before the file runs")

    def attend(self, q: str, k: str, v: str, bias: str | None, scores: tuple[str, str]) -> str:
        """Return softmax(q k^T + bias) v, (A, h, N, e).

        Args:
            q: (A, h, N, d), with the scale of the scores.
            k: (A, h, M, d).
            v: (A, h, M, e).
            bias: Broadcasts to (A, h, N, M); None: nothing is added.
            scores: N and M, int64 scalars.
        """
        logits = self.op("MatMul", q, self.swap(k, 4))
        if bias is not None:
            logits = self.op("Add", logits, bias)
        return self.op("MatMul", self.op("Softmax", logits, axis=-1), v)

    def count(self, size: str) -> str:
        """Return 0, 1, ..., size - 1."""
        return self.op("Range", self.ints(0), size, self.ints(1))

    def swap(self, tensor: str, rank: int) -> str:
        """Return the transpose of the last two axes."""
        perm = [*range(rank - 2), rank - 1, rank - 2]
        return self.op("Transpose", tensor, perm=perm)

    def loop(
        self,
        rounds: str,
        states: Sequence[tuple[str, int]],
        step: Callable[[str, list[str]], Sequence[str]],
    ) -> list[str]:
        """Return the states after a number of rounds of ``step``, then its stacked results.

        Args:
            rounds: Number of rounds, an int64 scalar.
            states: Tensors before the first round, each with its element type (TensorProto).
            step: (round from 0, states) -> states after the round, each of the shape it had, then
                float32 results of the round, which are stacked along a new first axis; it may read
                every tensor of the function so far.
        """
        outer, values = self._nodes, dict(self._values_by_content)
        self._nodes = []
        place, going = self._fresh("round"), self._fresh("going")
        before = [self._fresh("state") for _ in states]
        after = [self.op("Identity", value) for value in step(place, before)]
        still = self.op("Identity", going)
        info = helper.make_tensor_value_info
        kinds = [kind for _, kind in states]
        results = [*kinds, *[TensorProto.FLOAT] * (len(after) - len(kinds))]
        graph = helper.make_graph(
            self._nodes,
            self._fresh("body"),
            [
                info(place, TensorProto.INT64, []),
                info(going, TensorProto.BOOL, []),
                *(info(name, kind, None) for name, kind in zip(before, kinds, strict=True)),
            ],
            [
                info(still, TensorProto.BOOL, []),
                *(info(name, kind, None) for name, kind in zip(after, results, strict=True)),
            ],
        )
        self._nodes, self._values_by_content = outer, values
        names = [name for name, _ in states]
        # TensorRT's parser does not know the condition in the body where the node has none.
        go = self.constant(np.array(True))
        return self.ops("Loop", len(after), rounds, go, *names, body=graph)

    def function(self, write: Callable[[BodyBuilder], str | tuple[str, ...]]) -> onnx.FunctionProto:
        """Return the function with the results of ``write``.

        Each is cast to int32 or to the type of the first input.
        """
        written = write(self)
        results = (written,) if isinstance(written, str) else written
        for result, name, output in zip(results, self.schema.outputs, self._outputs, strict=True):
            if name in self.schema.int32:
                node = helper.make_node("Cast", [result], [output], to=TensorProto.INT32)
            else:
                node = helper.make_node("CastLike", [result, self.inputs[0]], [output])
            self._nodes.append(node)
        _name(self._nodes)
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain == DOMAIN for node in self._nodes):
            opsets.append(helper.make_opsetid(DOMAIN, VERSION))
        return helper.make_function(
            DOMAIN,
            self.schema.name,
            self.inputs,
            self._outputs,
            self._nodes,
            opsets,
            attributes=[*(a.name for a in self.schema.attributes), *PLUGIN_ATTRIBUTES],
            doc_string=self.schema.doc,
        )


def _name(nodes: Iterable[onnx.NodeProto]) -> None:
    """Name nodes, those of loops too, by their first outputs.

    When onnxruntime replaces a node by its body, it prefixes the body's names with that of the
    node: nodes without names would then share a name.
    """
    for node in nodes:
        node.name = node.output[0]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _name(attribute.g.node)
