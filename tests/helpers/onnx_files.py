"""ONNX files as other programs write them: window attention of standard operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, HEADS, WINDOW = 8, 2, 4


class Writer:
    """Collects nodes and constants of a graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def op(self, operator: str, *inputs: str, **attributes: Any) -> str:
        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, list(inputs), [output], f"/body/attn/{output}", **attributes)
        )
        return output

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant((scale * self.random.standard_normal(shape)).astype(np.float32))

    def constant(self, value: Any) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def whole(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def sizes(self, *parts: str | int) -> str:
        """Return a list of sizes, some of them computed."""
        listed = [self.whole(part) if isinstance(part, int) else part for part in parts]
        return self.op("Concat", *listed, axis=0)

    def model(
        self,
        taken: Sequence[int | str],
        given: Sequence[int | str],
        opsets: Mapping[str, int],
        ir_version: int = 8,
    ) -> onnx.ModelProto:
        """Return the model of the nodes, from ``x`` to the output of the last node, ``y``."""
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(
            self.nodes,
            "theirs",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(taken))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(given))],
            self.weights,
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*entry) for entry in opsets.items()],
            ir_version=ir_version,
            producer_name="theirs",
        )


def window_attention(
    path: Path,
    opset: int = 17,
    *,
    shape: Sequence[int | str] = (1, 3, "height", "width"),
    layers: int = 1,
    change: Callable[[onnx.ModelProto], None] = lambda _: None,
) -> Path:
    """Write a network of two convolutions and attention in windows between them."""
    w = Writer()
    x = w.op("Conv", "x", w.weight(CHANNELS, 3, 3, 3, scale=0.3), pads=[1, 1, 1, 1])
    for _ in range(layers):
        x = _window_attention(w, x)
    w.op("Conv", x, w.weight(3, CHANNELS, 3, 3, scale=0.2), pads=[1, 1, 1, 1])
    model = w.model(shape, ["b", 3, "h", "w"], {"": opset})
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def _window_attention(w: Writer, x: str) -> str:
    """Add attention in the windows of a map; return the map with its result added."""
    rows = w.op("Slice", w.op("Shape", x), *(w.constant(np.array([n], np.int64)) for n in (2, 3)))
    columns = w.op(
        "Slice", w.op("Shape", x), *(w.constant(np.array([n], np.int64)) for n in (3, 4))
    )
    window = w.constant(np.array([WINDOW], np.int64))
    down, across = w.op("Div", rows, window), w.op("Div", columns, window)
    tokens = w.op("Transpose", x, perm=[0, 2, 3, 1])
    cells = w.op("Reshape", tokens, w.sizes(-1, down, WINDOW, across, WINDOW, CHANNELS))
    moved = w.op("Transpose", cells, perm=[0, 1, 3, 2, 4, 5])
    windows = w.op("Reshape", moved, w.sizes(-1, WINDOW**2, CHANNELS))
    packed = w.op("MatMul", windows, w.weight(CHANNELS, 3 * CHANNELS, scale=0.7))
    packed = w.op("Reshape", packed, w.sizes(-1, WINDOW**2, 3, HEADS, CHANNELS // HEADS))
    packed = w.op("Transpose", packed, perm=[2, 0, 3, 1, 4])
    q, k, v = (w.op("Gather", packed, w.constant(np.int64(n)), axis=0) for n in range(3))
    scores = w.op(
        "MatMul",
        w.op("Mul", q, w.constant(np.float32(0.5))),
        w.op("Transpose", k, perm=[0, 1, 3, 2]),
    )
    scores = w.op("Add", scores, w.constant(_bias(w.random)))
    out = w.op("MatMul", w.op("Softmax", scores, axis=-1), v)
    out = w.op(
        "Reshape", w.op("Transpose", out, perm=[0, 2, 1, 3]), w.sizes(-1, WINDOW**2, CHANNELS)
    )
    out = w.op("MatMul", out, w.weight(CHANNELS, CHANNELS))
    out = w.op("Reshape", out, w.sizes(-1, down, across, WINDOW, WINDOW, CHANNELS))
    out = w.op("Transpose", out, perm=[0, 1, 3, 2, 4, 5])
    out = w.op("Reshape", out, w.sizes(-1, rows, columns, CHANNELS))
    return w.op("Add", x, w.op("Transpose", out, perm=[0, 3, 1, 2]))


def _bias(random: np.random.Generator) -> np.ndarray:
    """Return the biases of pairs from a table of offsets."""
    side = 2 * WINDOW - 1
    table = random.standard_normal((side, side, HEADS)).astype(np.float32)
    places = np.stack(np.meshgrid(range(WINDOW), range(WINDOW), indexing="ij"), -1).reshape(-1, 2)
    offsets = places[:, None] - places[None] + WINDOW - 1
    return np.ascontiguousarray(table[offsets[..., 0], offsets[..., 1]].transpose(2, 0, 1)[None])


def as_half(model: onnx.ModelProto) -> None:
    """Convert a model to half precision throughout, in place."""
    single, half = TensorProto.FLOAT, TensorProto.FLOAT16
    held = [attribute for node in model.graph.node for attribute in node.attribute]
    tensors = [attribute.t for attribute in held if attribute.HasField("t")]
    for tensor in [*model.graph.initializer, *tensors]:
        if tensor.data_type == single:
            array = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == single:
                attribute.i = half
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type == single:
            value.type.tensor_type.elem_type = half
    del model.graph.value_info[:]
