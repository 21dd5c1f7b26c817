"""Small ONNX graphs of the layers of a low precision, and their results."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def weight(
    name: str,
    *shape: int,
    value: float | None = None,
    random: np.random.Generator | None = None,
) -> onnx.TensorProto:
    """A tensor of one value, or of random ones: the same each time unless a generator is shared."""
    if value is not None:
        values = np.full(shape, value)
    else:
        values = (random or np.random.default_rng(0)).standard_normal(shape)
    return numpy_helper.from_array(values.astype(np.float32), name)


def model_of(
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    opset: int = 20,
    *,
    channels: int = 4,
) -> onnx.ModelProto:
    """A model from x (batch, channels, height, width) to y."""
    shape = ["batch", channels, "height", "width"]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "c", "h", "w"])],
        weights,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("nystra", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def small(opset: int = 20, *, weights: float | None = None) -> onnx.ModelProto:
    """Convolution, normalization, two products with a residual sum around, convolution, mean."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["first"], **CONV),
        helper.make_node("Shape", ["first"], ["sizes"]),
        helper.make_node("Transpose", ["first"], ["map"], perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["map", "g", "b0"], ["normal"], axis=-1),
        helper.make_node("MatMul", ["normal", "w1"], ["wide"]),
        helper.make_node("Add", ["wide", "b1"], ["biased"]),
        helper.make_node("Relu", ["biased"], ["active"]),
        helper.make_node("MatMul", ["active", "w2"], ["back"]),
        helper.make_node("Add", ["back", "b0"], ["done"]),
        helper.make_node("Add", ["map", "done"], ["stream"]),
        helper.make_node("Transpose", ["stream"], ["image"], perm=[0, 3, 1, 2]),
        helper.make_node("Reshape", ["image", "sizes"], ["same"]),
        helper.make_node("Conv", ["same", "w3", "b0"], ["last"], **CONV),
        helper.make_node("Add", ["last", "mean"], ["y"]),
    ]
    inputs = [
        weight("w0", 4, 4, 3, 3, value=weights, random=random),
        weight("b0", 4, random=random),
        weight("g", 4, random=random),
        weight("w1", 4, 8, random=random),
        weight("b1", 8, random=random),
        weight("w2", 8, 4, random=random),
        weight("w3", 4, 4, 3, 3, random=random),
        weight("mean", 1, 4, 1, 1, random=random),
    ]
    return model_of(nodes, inputs, opset)


def run(model: onnx.ModelProto, shape: tuple[int, ...] = (2, 4, 5, 7)) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    image = np.random.default_rng(1).random(shape, dtype=np.float32)
    (got,) = session.run(None, {"x": image})
    return got


def types(model: onnx.ModelProto) -> dict[str, int]:
    """Element type of every tensor, by ONNX's own inference, which checks every node's types."""
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    return {value.name: value.type.tensor_type.elem_type for value in values}
