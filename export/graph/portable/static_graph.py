"""A graph whose sizes are all known, written node by node."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ....core.errors import ExportError
from ....core.ports.port import Shape
from ...execute.reference import compute_node
from .rules import simplify

Constant: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[Any]]"

_SMALL = 2**15
"""Most elements of a constant that is larger than its operands."""

_NOT_FOLDED = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Not folded, so that the data of the file stays in low precision."""


@dataclass(frozen=True)
class Tensor:
    """Type, shape and, if constant, value of a tensor.

    Attributes:
        kind: Its element type (TensorProto).
        shape: Its sizes.
        value: Value of a constant, else None.
    """

    kind: int
    shape: Shape
    value: Constant | None = None


class StaticGraph:
    """Collects nodes and simplifies them: constants are evaluated, equal nodes written once.

    Attributes:
        tensors: What is known of each tensor, by name.
        producers: The node that writes a tensor, by its name.
        prefix: Prefix of the names of unnamed nodes.
    """

    def __init__(self, opset: int, outputs: Sequence[str]) -> None:
        """Start an empty graph of an opset; names of outputs are reserved for `graph`."""
        self.tensors: dict[str, Tensor] = {}
        self.producers: dict[str, onnx.NodeProto] = {}
        self.prefix = ""
        self._opset = opset
        self._nodes: list[onnx.NodeProto] = []
        self._equal: dict[bytes, list[str]] = {}
        self._constants: dict[tuple[str, Shape, bytes], str] = {}
        self._used = Counter(outputs)

    def input(
        self,
        name: str,
        kind: int,
        shape: Shape,
    ) -> None:
        """Add an input of the graph."""
        self.tensors[self._unique(name)] = Tensor(kind, shape)

    def constant(self, value: Constant, name: str = "constant") -> str:
        """Return the name of a constant, or of an equal one that exists already."""
        value = np.asarray(value, order="C")
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._constants:
            self._constants[key] = self._unique(name)
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            self.tensors[self._constants[key]] = Tensor(kind, value.shape, value)
        return self._constants[key]

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Return the only output of a node, or a tensor equal to it."""
        name = op_type
        if self.prefix:
            name = f"{self.prefix}/{op_type}"
        node = helper.make_node(op_type, inputs, [name], **attributes)
        return self.add(node)[0]

    def reshape(self, tensor: str, shape: Shape) -> str:
        """Return the tensor in another shape."""
        sides = self.constant(np.array(shape, np.int64))
        return self.op("Reshape", tensor, sides)

    def add(self, node: onnx.NodeProto) -> list[str]:
        """Add a node whose inputs are tensors of this graph; return the names of its outputs.

        Raises:
            ExportError: It is not an operator of ONNX with known sizes.
        """
        key = _identity(node)
        if key not in self._equal:
            outputs = self._infer_outputs(node)
            inputs = [self.tensors.get(name) for name in node.input]
            values = _fold(node, inputs, outputs, self._opset)
            if values is not None:
                self._equal[key] = [
                    self.constant(value, name)
                    for name, value in zip(node.output, values, strict=True)
                ]
            elif (other := simplify(self, node, outputs)) is not None:
                self._equal[key] = [other]
            else:
                self._equal[key] = self._append(node, outputs)
        return self._equal[key]

    def value(self, tensor: str) -> Constant | None:
        """Return the value of a constant, None for other tensors."""
        entry = self.tensors.get(tensor)
        if entry is None:
            return None
        return entry.value

    def graph(
        self,
        name: str,
        inputs: list[str],
        outputs: dict[str, str],
    ) -> onnx.GraphProto:
        """Return the graph of the nodes that its outputs need.

        Args:
            name: Name of the graph.
            inputs: Tensors.
            outputs: Name -> tensor.
        """
        final = {tensor: name for name, tensor in outputs.items() if tensor in self.producers}
        nodes = []
        needed = set(outputs.values())
        for node in reversed(self._nodes):
            if needed & set(node.output):
                needed |= set(node.input)
                nodes.append(node)
        nodes.reverse()
        for node in nodes:
            for names in (node.input, node.output):
                names[:] = [final.get(name, name) for name in names]
            node.name = node.output[0]
        for output, tensor in outputs.items():
            self.tensors[output] = replace(self.tensors[tensor], value=None)
            if final.get(tensor) != output:
                source = final.get(tensor, tensor)
                identity = helper.make_node("Identity", [source], [output], name=output)
                nodes.append(identity)
        initializers = [
            numpy_helper.from_array(entry.value, name)
            for name, entry in self.tensors.items()
            if entry.value is not None and name in needed
        ]
        return helper.make_graph(
            nodes, name, self._infos(inputs), self._infos(outputs), initializers
        )

    def _infos(self, names: Iterable[str]) -> list[onnx.ValueInfoProto]:
        infos = []
        for name in names:
            tensor = self.tensors[name]
            info = helper.make_tensor_value_info(name, tensor.kind, tensor.shape)
            infos.append(info)
        return infos

    def _append(self, node: onnx.NodeProto, outputs: list[Tensor]) -> list[str]:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.output[:] = [self._unique(name) if name else "" for name in node.output]
        self._nodes.append(copy)
        for name, tensor in zip(copy.output, outputs, strict=True):
            self.tensors[name] = tensor
            self.producers[name] = copy
        return list(copy.output)

    def _unique(self, name: str) -> str:
        self._used[name] += 1
        if self._used[name] == 1:
            return name
        return self._unique(f"{name}_{self._used[name]}")

    def _infer_outputs(self, node: onnx.NodeProto) -> list[Tensor]:
        try:
            schema = onnx.defs.get_schema(node.op_type, self._opset, node.domain)
            types = {}
            data = {}
            for name in filter(None, node.input):
                entry = self.tensors[name]
                types[name] = helper.make_tensor_type_proto(entry.kind, entry.shape)
                if entry.value is not None and entry.value.size <= 64:
                    data[name] = numpy_helper.from_array(entry.value, name)
            inferred = onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=[helper.make_opsetid("", self._opset)]
            )
            return [_tensor(inferred[name]) if name else Tensor(0, ()) for name in node.output]
        except (
            onnx.defs.SchemaError,
            onnx.shape_inference.InferenceError,
            KeyError,
            ValueError,
        ) as error:
            raise ExportError(
                f"node {node.name or node.output[0]} ({node.op_type}) cannot be written for a "
                f"fixed size: {error}"
            ) from error


def _tensor(inferred: onnx.TypeProto) -> Tensor:
    form = inferred.tensor_type
    dims = form.shape.dim
    if not form.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
        raise ValueError("its output has no fixed shape")
    return Tensor(form.elem_type, tuple(dim.dim_value for dim in dims))


def _identity(node: onnx.NodeProto) -> bytes:
    """Return bytes that are equal for nodes that compute the same."""
    bare = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    bare.input.extend(node.input)
    attributes = sorted(node.attribute, key=lambda attribute: attribute.name)
    bare.attribute.extend(attributes)
    bare.output.extend("" for _ in node.output)
    identity: bytes = bare.SerializeToString(deterministic=True)
    return identity


def _fold(
    node: onnx.NodeProto,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    opset: int,
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
    operands = [tensor for tensor in inputs if tensor is not None]
    if node.op_type in _NOT_FOLDED or any(tensor.value is None for tensor in operands):
        return None
    if node.op_type == "Constant":
        return [_constant(node)]
    before = sum(math.prod(tensor.shape) for tensor in operands)
    limit = max(before, _SMALL)
    floats = [tensor for tensor in outputs if _is_float(tensor)]
    if any(math.prod(tensor.shape) > limit for tensor in floats):
        return None
    arrays = [None if tensor is None else tensor.value for tensor in inputs]
    results = compute_node(node, arrays, opset)
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
