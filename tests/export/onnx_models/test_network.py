"""A file read as a PyTorch network gives the output of onnxruntime, control flow included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from nystra.export.onnx_models.file_network import read_file
from nystra.export.onnx_models.tracing import CUT, NAME, trace
from onnx_files import window_attention
from plain_onnxruntime import in_onnxruntime


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_a_file_gives_what_onnxruntime_gives(opset: int, tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx", opset)
    network = read_file(path)
    for size in ((8, 8), (12, 20)):
        image = torch.rand(1, 3, *size)
        expected = in_onnxruntime(path, image.numpy())
        np.testing.assert_allclose(network(image).numpy(), expected, atol=1e-5)
        wide = network.double()(image.double())
        assert wide.dtype == torch.float64
        np.testing.assert_allclose(wide.numpy(), expected, atol=1e-5)
        network.float()


def test_a_trace_names_its_values_as_the_file_does(tmp_path: Path) -> None:
    network = read_file(window_attention(tmp_path / "theirs.onnx"))
    traced = trace(network, (torch.rand(1, 3, 8, 12),))
    named = [node for node in traced.graph.graph.nodes if NAME in node.meta]
    softmax = next(node for node in named if "softmax" in str(node.target))
    assert softmax.meta[NAME].startswith("softmax_")
    assert next(iter(softmax.meta["nn_module_stack"])) == "body"
    assert {node.meta[NAME] for node in named} >= {"x", "y"}
    assert all(node.meta[CUT] == (NAME in node.meta) for node in traced.graph.graph.nodes)
    sized = [node.meta[NAME] for node in named if node.meta.get("sized")]
    assert not [name for name in sized if name.startswith("weight")]


def test_control_flow_is_run(tmp_path: Path) -> None:
    """A Loop that adds the image three times, and an If that depends on its mean."""

    def change(model: onnx.ModelProto) -> None:
        value = helper.make_tensor_value_info
        body = helper.make_graph(
            [
                helper.make_node("Add", ["sum_in", "y0"], ["sum_out"]),
                helper.make_node("Identity", ["going_in"], ["going_out"]),
            ],
            "body",
            [
                value("number", TensorProto.INT64, []),
                value("going_in", TensorProto.BOOL, []),
                value("sum_in", TensorProto.FLOAT, None),
            ],
            [
                value("going_out", TensorProto.BOOL, []),
                value("sum_out", TensorProto.FLOAT, None),
            ],
        )
        branches = {
            name: helper.make_graph(
                [helper.make_node(operator, ["sum"], [f"{name}_out"])],
                name,
                [],
                [value(f"{name}_out", TensorProto.FLOAT, None)],
            )
            for name, operator in (("then_branch", "Neg"), ("else_branch", "Abs"))
        }
        graph = model.graph
        graph.node[-1].output[0] = "y0"
        graph.initializer.append(numpy_helper.from_array(np.array(3), "three"))
        graph.initializer.append(numpy_helper.from_array(np.array(0.0, np.float32), "zero"))
        graph.node.extend(
            [
                helper.make_node("Loop", ["three", "", "y0"], ["sum"], body=body),
                helper.make_node("ReduceMean", ["y0"], ["mean"], keepdims=0),
                helper.make_node("Greater", ["mean", "zero"], ["positive"]),
                helper.make_node("If", ["positive"], ["y"], **branches),
            ]
        )

    path = window_attention(tmp_path / "theirs.onnx", change=change)
    network = read_file(path)
    for sign in (1.0, -1.0):
        image = sign * torch.rand(1, 3, 8, 8)
        expected = in_onnxruntime(path, image.numpy())
        np.testing.assert_allclose(
            network(image).numpy(), expected, rtol=0, atol=2e-6 * np.abs(expected).max()
        )
