"""A piece is inserted between two values of a file; everything else stays byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from nystra.export.onnx_models.cutting import fits_opset, nodes_of, raised, splice, unused_prefix
from nystra.export.onnx_models.reading import opset_of
from onnx_files import window_attention


def hand_stated_site(model: onnx.ModelProto) -> tuple[str, str]:
    """The values around the attention of `window_attention`: windows, in and out."""
    products = [node for node in model.graph.node if node.op_type == "MatMul"]
    return products[0].input[0], products[-1].output[0]


def piece(source: str, output: str, opset: int = 17) -> onnx.ModelProto:
    """A piece that doubles its input."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Mul", [source, "two"], ["product"], "product"),
            helper.make_node("Identity", ["product"], [output], "last"),
        ],
        "piece",
        [value(source, TensorProto.FLOAT, None)],
        [value(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32([2.0]), "two")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def run(model: onnx.ModelProto, size: tuple[int, int]) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    image = np.random.default_rng(0).random((1, 3, *size)).astype(np.float32)
    made: np.ndarray = session.run(None, {"x": image})[0]
    return made


def test_what_is_around_a_piece_stays_byte_for_byte(tmp_path: Path) -> None:
    before = onnx.load(window_attention(tmp_path / "theirs.onnx"))
    after = onnx.load(tmp_path / "theirs.onnx")
    source, output = hand_stated_site(after)
    splice(after, piece(source, output), "ours/")
    onnx.checker.check_model(after)
    old = {node.name: node.SerializeToString() for node in before.graph.node}
    kept = [node for node in after.graph.node if not node.name.startswith("ours/")]
    assert all(node.SerializeToString() == old[node.name] for node in kept)
    order = [node.name for node in before.graph.node]
    places = [order.index(node.name) for node in kept]
    assert places == sorted(places)
    assert [node.name for node in after.graph.node if node not in kept] == [
        "ours/product",
        "ours/last",
    ]
    assert {node.op_type for node in before.graph.node} - {n.op_type for n in kept} == {
        "Softmax",
        "MatMul",
        "Mul",
        "Gather",
    }
    weights = {tensor.name: tensor.SerializeToString() for tensor in before.graph.initializer}
    own = [tensor for tensor in after.graph.initializer if tensor.name in weights]
    assert all(tensor.SerializeToString() == weights[tensor.name] for tensor in own)
    assert len(own) < len(weights)
    assert after.graph.input == before.graph.input
    assert after.graph.output == before.graph.output
    assert opset_of(after) == 17


def test_a_piece_is_what_is_computed(tmp_path: Path) -> None:
    """The piece takes and returns the values that it was inserted between."""
    model = onnx.load(window_attention(tmp_path / "theirs.onnx"))
    source, output = hand_stated_site(model)
    model.graph.output.append(onnx.ValueInfoProto(name=source))
    splice(model, piece(source, output), "ours/")
    model.graph.output.append(onnx.ValueInfoProto(name=output))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    image = np.random.default_rng(0).random((1, 3, 8, 12)).astype(np.float32)
    given, made = session.run([source, output], {"x": image})
    np.testing.assert_array_equal(made, 2 * given)


def test_nodes_that_were_dead_before_stay(tmp_path: Path) -> None:
    model = onnx.load(window_attention(tmp_path / "theirs.onnx"))
    model.graph.node.append(helper.make_node("Neg", ["x"], ["unused"], "dead"))
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1]), "unused_weight"))
    splice(model, piece(*hand_stated_site(model)), "ours/")
    assert "dead" in {node.name for node in model.graph.node}
    assert "unused_weight" in {tensor.name for tensor in model.graph.initializer}


def test_an_output_without_a_name_is_read_by_nothing(tmp_path: Path) -> None:
    model = onnx.load(window_attention(tmp_path / "theirs.onnx"))
    model.graph.node.append(helper.make_node("Dropout", ["x"], ["unused", ""], "dead"))
    splice(model, piece(*hand_stated_site(model)), "ours/")
    assert "Softmax" not in {node.op_type for node in model.graph.node}


def test_an_equal_constant_of_the_file_is_used(tmp_path: Path) -> None:
    model = onnx.load(window_attention(tmp_path / "theirs.onnx"))
    own = numpy_helper.from_array(np.float32([2.0]), "theirs_two")
    model.graph.initializer.append(own)
    splice(model, piece(*hand_stated_site(model)), "ours/")
    product = next(node for node in model.graph.node if node.name == "ours/product")
    assert product.input[1] == "theirs_two"


def test_no_name_of_a_file_is_taken_twice(tmp_path: Path) -> None:
    model = onnx.load(window_attention(tmp_path / "theirs.onnx"))
    assert unused_prefix(model, "ours/") == "ours/"
    model.graph.node[0].name = "ours/conv"
    assert unused_prefix(model, "ours/") == "ours_2/"


def test_a_node_fits_an_opset_that_has_the_same_operator() -> None:
    def node(operator: str) -> onnx.NodeProto:
        return helper.make_node(operator, ["a"], ["b"])

    assert fits_opset([node("MatMul"), node("Softmax")], 18, 17)
    assert not fits_opset([node("ReduceMax")], 18, 17)
    assert not fits_opset([node("LayerNormalization")], 18, 16)


@pytest.mark.parametrize("opset", [13, 17])
def test_a_raised_file_computes_the_same(opset: int, tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:  # an operator that changed at 18
        node = helper.make_node("ReduceMean", ["y0"], ["mean"], axes=[1], keepdims=1)
        model.graph.node[-1].output[0] = "y0"
        model.graph.node.extend([node, helper.make_node("Add", ["mean", "y0"], ["y"])])

    model = onnx.load(window_attention(tmp_path / "theirs.onnx", opset, change=change))
    later = raised(model, 18)
    assert opset_of(later) == 18
    values = {name for node in model.graph.node for name in node.output}
    assert values <= {name for node in nodes_of(later.graph) for name in node.output}
    np.testing.assert_allclose(run(later, (8, 12)), run(model, (8, 12)), atol=1e-6)
