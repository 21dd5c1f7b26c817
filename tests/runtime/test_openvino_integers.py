"""Maps of 8-bit integers that are joined have their negative values in OpenVINO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nystra.core.metadata import key_of
from nystra.runtime import Session
from nystra.runtime.backends.openvino.integers import merge_scales

openvino = pytest.importorskip("openvino", reason="nystra[openvino] is not installed")

CHANNELS = 16
IMAGE = np.random.default_rng(1).random((1, CHANNELS, 12, 12), np.float32) - np.float32(0.5)


def joined(*, before: bool, point: int = 0) -> onnx.ModelProto:
    """A convolution of its input and of another convolution, in integers.

    Args:
        before: The maps are rounded before they are joined, not after it.
        point: The zero point of the maps.
    """
    random = np.random.default_rng(0)
    nodes, stored = [], {"scale": np.float32(0.01), "point": np.int8(point)}

    def rounded(name: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [name, "scale", "point"], [f"{name}.q"]))
        back = [f"{name}.q", "scale", "point"]
        nodes.append(helper.make_node("DequantizeLinear", back, [f"{name}.r"]))
        return f"{name}.r"

    def convolved(name: str, channels: int, output: str) -> None:
        shape = (CHANNELS, channels, 3, 3)
        stored[f"{output}.w"] = random.integers(-127, 128, shape).astype(np.int8)
        stored[f"{output}.s"] = np.full(CHANNELS, 1 / (1500 * channels**0.5), np.float32)
        weight = [f"{output}.w", f"{output}.s"]
        nodes.append(helper.make_node("DequantizeLinear", weight, [f"{output}.f"], axis=0))
        nodes.append(helper.make_node("Conv", [name, f"{output}.f"], [output], pads=[1] * 4))

    first = rounded("x")
    convolved(first, CHANNELS, "one")
    parts = [first, rounded("one")] if before else ["x", "one"]
    nodes.append(helper.make_node("Concat", parts, ["both"], axis=1))
    convolved("both" if before else rounded("both"), 2 * CHANNELS, "y")
    shape = [1, CHANNELS, "height", "width"]
    graph = helper.make_graph(
        nodes,
        "joined",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    model.metadata_props.add(key=key_of("version"), value="0")
    return model


@pytest.mark.parametrize("before", [True, False])
def test_negative_values_of_joined_maps_are_kept(before: bool, tmp_path: Path) -> None:
    path = tmp_path / "joined.onnx"
    path.write_bytes(joined(before=before).SerializeToString())
    got, want = (Session(path, backend, 1)(IMAGE) for backend in ("openvino", "ort-cpu"))
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.parametrize(("point", "count"), [(0, 2), (5, 0)])
def test_maps_with_a_zero_point_are_left_alone(point: int, count: int) -> None:
    content = joined(before=True, point=point).SerializeToString()
    model: Any = openvino.Core().read_model(content)
    assert [node.get_type_name() for node in model.get_ops()].count("FakeQuantize") == 2
    assert merge_scales(model) == count
