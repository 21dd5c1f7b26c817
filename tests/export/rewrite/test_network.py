"""Parts of a file, and a network with sites in it, give the output of onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from nystra.core.errors import UnsupportedModelError
from nystra.export.attention.site import find_sites
from nystra.export.execute import folding, sized
from nystra.export.execute.parts import PartRunner, cut_into_parts
from nystra.export.execute.sized import infer_sizes
from nystra.export.load.onnx_file import load_onnx
from nystra.runtime.ort_values import copy_from_ort, copy_to_ort
from onnx_files import window_attention
from plain_onnxruntime import in_onnxruntime


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_parts_of_any_length_give_what_the_file_gives(size: int, tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx")
    model = ir.load(path)
    image = np.random.default_rng(0).random((1, 3, 8, 12)).astype(np.float32)
    values = {"x": copy_to_ort(image)}
    for part in cut_into_parts(list(model.graph), ["y"], size):
        values |= PartRunner(model).run(part, values)
    np.testing.assert_allclose(copy_from_ort(values["y"]), in_onnxruntime(path, image), atol=1e-5)


def test_shapes_and_constants_are_those_of_a_run(tmp_path: Path) -> None:
    model = ir.load(window_attention(tmp_path / "theirs.onnx"))
    taken = infer_sizes(model, {"x": np.zeros((1, 3, 8, 12), np.float32)})
    assert taken.shapes["y"] == (1, 3, 8, 12)
    softmax = next(node for node in model.graph if node.op_type == "Softmax")
    assert taken.shapes[str(softmax.outputs[0].name)] == (6, 2, 16, 16)
    assert str(softmax.outputs[0].name) in taken.data
    reshape = next(node for node in model.graph if node.op_type == "Reshape")
    sizes = reshape.inputs[1]
    assert sizes is not None
    assert taken.is_constant(sizes)
    assert taken.constant(sizes).tolist() == [-1, 2, 4, 3, 4, 8]


def test_large_constants_are_computed_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mask that is made of the size of the image is not held, its maximum is."""
    made = helper.make_node
    size = [2048]
    nodes = [
        made("Shape", ["x"], ["side"], start=2, end=3),
        made("Concat", ["side", "side"], ["sides"], axis=0),
        made("ConstantOfShape", ["sides"], ["ones"], value=helper.make_tensor("", 1, [1], [1.0])),
        made("Trilu", ["ones"], ["upper"], upper=1),
        made("Not", ["flag"], ["other"]),
        made("Where", ["other", "upper", "ones"], ["mask"]),
        made("ReduceMax", ["upper"], ["most"], keepdims=0),
        made("Add", ["x", "mask"], ["masked"]),
        made("Mul", ["masked", "most"], ["y"]),
    ]
    shape = [1, 1, *size, *size]
    graph = helper.make_graph(
        nodes,
        "masks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.array(False), "flag")],
    )
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    held: list[set[str]] = []
    run = PartRunner.run

    def noted(self: PartRunner, *args: Any, **options: Any) -> Any:
        values = run(self, *args, **options)
        held.append({*values})
        return values

    monkeypatch.setattr(PartRunner, "run", noted)
    taken = infer_sizes(model, {"x": np.zeros(shape, np.float32)})
    assert set().union(*held).isdisjoint({"ones", "upper", "mask"})
    by_name = {str(value.name): value for node in model.graph for value in node.outputs}
    assert taken.is_constant(by_name["mask"])
    assert taken.constant(by_name["most"]) == 1.0
    assert torch.equal(taken.constant(by_name["mask"]), torch.ones(*size, *size).triu())


def test_a_file_that_needs_too_much_memory_is_refused_before_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "MOST_BYTES", 1 << 20)
    path = window_attention(tmp_path / "theirs.onnx", shape=(1, 3, 512, 512))
    with pytest.raises(UnsupportedModelError, match=r"need at least .* GB at one time"):
        load_onnx(path, {})


def test_a_site_of_another_mechanism_is_computed_between_the_nodes(tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx")
    network: Any = load_onnx(path, {}).network
    (site,) = find_sites(network)
    image = torch.rand(1, 3, 8, 12)
    expected = in_onnxruntime(path, image.numpy())
    exact = site.module.implementation
    calls = []

    def counted(*given: Any) -> Any:
        calls.append(given[0].dtype)
        return exact(*given)

    site.module.implementation = counted
    np.testing.assert_allclose(network(image).numpy(), expected, atol=1e-5)
    double = network.double()(image.double())
    np.testing.assert_allclose(double.numpy(), expected, atol=1e-5)
    assert calls == [torch.float32, torch.float64]


def _with_control_flow(model: onnx.ModelProto) -> None:
    """Add a Loop that adds the image three times, and an If that depends on its mean."""
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
        [value("going_out", TensorProto.BOOL, []), value("sum_out", TensorProto.FLOAT, None)],
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


def test_attention_before_control_flow_is_found(tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx", change=_with_control_flow)
    network = load_onnx(path, {}).network
    (site,) = find_sites(network)
    exact = site.module.implementation
    site.module.implementation = lambda *given: exact(*given)
    for sign in (1.0, -1.0):
        image = sign * torch.rand(1, 3, 8, 8)
        expected = in_onnxruntime(path, image.numpy())
        np.testing.assert_allclose(
            network(image).numpy(), expected, rtol=0, atol=2e-6 * np.abs(expected).max()
        )


@pytest.mark.parametrize("sides", [(2160, 3840), (1440, 2560)])
def test_a_file_of_a_large_image_is_refused_or_known_without_a_run(
    sides: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shapes follow from sizes that are computed, which is done without its pixels."""
    monkeypatch.setattr(sized, "_run", None)
    model = ir.load(window_attention(tmp_path / "theirs.onnx", shape=(1, 3, *sides)))
    image = np.broadcast_to(np.float32(0), (1, 3, *sides))
    if sides == (2160, 3840):
        with pytest.raises(UnsupportedModelError, match=r"need at least 2\.4 GB at one time"):
            infer_sizes(model, {"x": image})
        return
    softmax = next(node for node in model.graph if node.op_type == "Softmax")
    shapes = infer_sizes(model, {"x": image}).shapes
    assert shapes[str(softmax.outputs[0].name)] == (1440 * 2560 // 16, 2, 16, 16)


@pytest.mark.release
def test_only_values_that_are_read_again_count(tmp_path: Path) -> None:
    """24 values of 64 MB and more, one after the other, with a small one of each that is kept."""
    graph = helper.make_graph([], "graph", [], [])
    graph.input.append(helper.make_tensor_value_info("x0", TensorProto.FLOAT, [16, 1 << 20]))
    graph.initializer.append(numpy_helper.from_array(np.zeros((1, 1 << 20), np.float32), "row"))
    body = helper.make_graph(
        [helper.make_node("Identity", ["x0"], ["same"])],
        "body",
        [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, None)],
    )
    yes = numpy_helper.from_array(np.array(True), "yes")
    graph.initializer.append(yes)
    graph.node.append(helper.make_node("If", ["yes"], ["y0"], then_branch=body, else_branch=body))
    count = 24
    for at in range(count):
        graph.node.append(helper.make_node("Concat", [f"y{at}", "row"], [f"y{at + 1}"], axis=0))
        graph.node.append(helper.make_node("ReduceMean", [f"y{at + 1}"], [f"small{at}"]))
    graph.node.append(helper.make_node("Sum", [f"small{at}" for at in range(count)], ["sum"]))
    graph.output.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, None))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    found = infer_sizes(ir.from_proto(model), {"x0": np.zeros((16, 1 << 20), np.float32)})
    assert found.shapes[f"y{count}"] == (16 + count, 1 << 20)
    assert found.shapes["sum"] == (1, 1)
