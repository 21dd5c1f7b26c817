"""Tiny ONNX files for the tests of the runtime."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save_upscaler(
    path: Path,
    scale: int = 2,
    channels: int | str = 3,
    *,
    size: tuple[int | str, int | str] = ("height", "width"),
    metadata: dict[str, str] | None = None,
    gain: float = 1.0,
    dtype: int = TensorProto.FLOAT,
    batch: int | str = "batch",
) -> Path:
    """Write a nearest-neighbor upscaler, multiplied by ``gain``."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    height, width = (s * scale if isinstance(s, int) else f"{s}_out" for s in size)
    graph = helper.make_graph(
        [
            helper.make_node("Resize", ["input", "", "scales"], ["large"], mode="nearest"),
            helper.make_node("Mul", ["large", "gain"], ["output"]),
        ],
        "upscaler",
        [helper.make_tensor_value_info("input", dtype, [batch, channels, *size])],
        [helper.make_tensor_value_info("output", dtype, [batch, channels, height, width])],
        [
            numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), "scales"),
            numpy_helper.from_array(np.array(gain, kind), "gain"),
        ],
    )
    return _save(path, graph, metadata)


def nystra_metadata(scale: int = 2, channels: int = 3, **more: str) -> dict[str, str]:
    """Return the metadata an export of an upscaler would write."""
    io = [
        {"name": "input", "role": "image", "layout": "NCHW", "range": [0, 1], "dtype": "float32"},
        {"name": "output", "role": "picture", "layout": "NCHW", "range": [0, 1]},
    ]
    plain = {
        "architecture": "nearest",
        "scale": str(scale),
        "input_channels": str(channels),
        "output_channels": str(channels),
        "license": "CC0-1.0",
        "nystra.version": "0.1.0",
        "nystra.task": "restoration",
        "nystra.io": json.dumps(io),
        "nystra.range": "[0.0, 1.0]",
        "nystra.size_multiple": "1",
        "nystra.size_minimum": "1",
        "nystra.tiling": "supported",
        "nystra.precision": "fp32",
        "nystra.window": "[8, 8]",
    }
    return {**plain, **more}


def save_blur(path: Path, radius: int, weight_seed: int = 0) -> Path:
    """Write a gray convolution with a radius of ``radius`` pixels."""
    side = 2 * radius + 1
    kernel = np.random.default_rng(weight_seed).random((1, 1, side, side)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["input", "kernel"], ["output"], pads=[radius] * 4)],
        "blur",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 1, "h", "w"])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1, "h", "w"])],
        [numpy_helper.from_array(kernel / kernel.sum(), "kernel")],
    )
    return _save(path, graph, None)


def save_operator(path: Path, *, body: bool) -> Path:
    """Write a model of one node of the domain nystra (a doubling), with or without a body."""
    graph = helper.make_graph(
        [helper.make_node("NystraDouble", ["input"], ["output"], domain="nystra")],
        "operator",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["b", 3, "h", "w"])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["b", 3, "h", "w"])],
    )
    function = helper.make_function(
        "nystra",
        "NystraDouble",
        ["x"],
        ["y"],
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [helper.make_opsetid("", 20)],
    )
    return _save(path, graph, nystra_metadata(1), [function] if body else [])


def _save(
    path: Path,
    graph: onnx.GraphProto,
    metadata: dict[str, str] | None,
    functions: list[onnx.FunctionProto] | None = None,
) -> Path:
    opsets = [helper.make_opsetid("", 20)]
    if functions is not None:
        opsets.append(helper.make_opsetid("nystra", 1))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions or [])
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return path
