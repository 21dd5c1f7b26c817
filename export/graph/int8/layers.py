"""The layers of a graph that may compute in 8-bit integers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

KINDS = ("Conv", "Gemm", "MatMul")
"""Operators that programs compute in integers where input and weight are of 8 bits."""


@dataclass(frozen=True)
class WeightLayer:
    """A product with a weight.

    Attributes:
        path: Path of its module, or the name of its node if that has no path.
        node: Its unique name in the graph.
        kind: One of `KINDS`.
        source: The input map.
        output: The output map.
        weight: Name of its weight.
        values: The weight.
        axis: The axis of the output channels in the weight.
    """

    path: str
    node: str
    kind: str
    source: str
    output: str
    weight: str
    values: npt.NDArray[np.float32]
    axis: int

    @property
    def products(self) -> int:
        """Multiplications for one output channel at one position."""
        channels: int = self.values.shape[self.axis]
        return self.values.size // channels

    def round_weight(self) -> npt.NDArray[np.float32]:
        """Return the weight rounded to 8 bits: 127 steps to the largest of an output channel."""
        axes = range(self.values.ndim)
        others = tuple(axis for axis in axes if axis != self.axis)
        largest = np.abs(self.values).max(axis=others, keepdims=True)
        step = np.maximum(largest / 127.0, np.finfo(np.float32).tiny)
        rounded = np.round(self.values / step) * step
        return np.asarray(rounded, np.float32)


def find_layers(graph: onnx.GraphProto) -> list[WeightLayer]:
    """Return the layers of a traced graph, in order.

    A node is not a layer if several nodes read its weight, if the weight is not a float32 constant,
    or if both factors are feature maps, as in attention.
    """
    stored = {
        tensor.name: tensor for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT
    }
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    layers = []
    for node in graph.node:
        if node.domain != "" or node.op_type not in KINDS:
            continue
        if node.input[0] in stored:
            continue
        weight = stored.get(node.input[1])
        if weight is None or len(readers[weight.name]) > 1:
            continue
        axes = len(weight.dims)
        if axes < 2 or (node.op_type == "MatMul" and axes != 2):
            continue
        reading = readers.get(node.output[0], [])
        path = _path(node, reading, stored.keys())
        layers.append(
            WeightLayer(
                path,
                node.name,
                node.op_type,
                node.input[0],
                node.output[0],
                weight.name,
                numpy_helper.to_array(weight),
                _channels(node),
            )
        )
    return layers


def _channels(node: onnx.NodeProto) -> int:
    if node.op_type == "Gemm":
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        if attributes.get("transB", 0):
            return 0
        return 1
    if node.op_type == "Conv":
        return 0
    return 1


def _path(node: onnx.NodeProto, readers: list[onnx.NodeProto], stored: Collection[str]) -> str:
    own = [name for name in node.input[1:] if name.endswith((".weight", ".bias"))]
    additions = [reader for reader in readers if reader.op_type == "Add"]
    added = [name for addition in additions for name in addition.input if name in stored]
    biases = [name for name in added if name.endswith(".bias")]
    names = [*own, *biases]
    if names:
        return str(names[0]).rpartition(".")[0]
    return str(node.name)
