"""An ONNX file of another program gets every option that a checkpoint gets."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nystra.core.errors import NystraError
from nystra.export import ExportOptions, Plan, export_model, mechanism, replacement_timing
from nystra.export.load.images import photographs
from nystra.export.load.onnx_file import read_file
from nystra.export.rewrite.initializers import make_initializers
from onnx_files import as_half, window_attention
from plain_onnxruntime import in_onnxruntime
from processor import require_exact_int8

FULL = ExportOptions(plan=Plan(mechanism("full")), speed=False)


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every replacement be measured as fast."""
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[2.0], [1.0]])


def as_older_programs_write(model: onnx.ModelProto) -> None:
    """Weights as nodes, behind other nodes and as inputs; a branch; nodes without names."""
    graph = model.graph
    first, last = graph.node[0], graph.node[-1]
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    constant = helper.make_node("Constant", [], ["held"], value=tensors[first.input[1]])
    weight = numpy_helper.to_array(tensors[last.input[1]]).transpose(1, 0, 2, 3)
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(weight), "turned"))
    turned = helper.make_node("Transpose", ["turned"], ["back"], perm=[1, 0, 2, 3])
    same = helper.make_node("Identity", ["back"], ["again"])
    first.input[1], last.input[1] = "held", "again"
    tensor = next(tensor for tensor in graph.initializer if len(tensor.dims) == 2)
    graph.input.append(helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims))
    value = helper.make_tensor_value_info("chosen", TensorProto.FLOAT, None)
    then, other = (
        helper.make_graph([helper.make_node(name, ["wide"], ["chosen"])], name, [], [value])
        for name in ("Relu", "Tanh")
    )
    graph.initializer.append(numpy_helper.from_array(np.bool_(True), "go"))
    last.output[0] = "wide"
    for node in graph.node:
        node.name = ""
    for place, node in enumerate([constant, turned, same]):
        graph.node.insert(place, node)
    graph.node.append(helper.make_node("If", ["go"], ["y"], then_branch=then, else_branch=other))


def with_small_outputs(model: onnx.ModelProto) -> None:
    """The same, with outputs in the range of images, to which 8 bits are compared."""
    last = next(t for t in model.graph.initializer if t.name == model.graph.node[-1].input[1])
    last.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(last) / 64, last.name))
    as_older_programs_write(model)


def weight_in_branch(model: onnx.ModelProto) -> None:
    """A weight of a layer that a branch reads too."""
    last = model.graph.node[-1]
    last.output[0] = "wide"
    value = helper.make_tensor_value_info("chosen", TensorProto.FLOAT, None)
    mean = helper.make_node("ReduceMean", [last.input[1]], ["mean"], keepdims=0)
    added = helper.make_node("Add", ["wide", "mean"], ["chosen"])
    then = helper.make_graph([mean, added], "then", [], [value])
    same = helper.make_node("Identity", ["wide"], ["chosen"])
    other = helper.make_graph([same], "other", [], [value])
    model.graph.initializer.append(numpy_helper.from_array(np.bool_(True), "go"))
    model.graph.node.append(
        helper.make_node("If", ["go"], ["y"], then_branch=then, else_branch=other)
    )


def all_in_nodes(model: onnx.ModelProto) -> None:
    """Weights as nodes only."""
    graph = model.graph
    for place, tensor in enumerate(graph.initializer):
        graph.node.insert(place, helper.make_node("Constant", [], [tensor.name], value=tensor))
    del graph.initializer[:]


def types_of(path: Path) -> Counter[int]:
    """Return how many weights of layers a file has of each type."""
    return Counter(t.data_type for t in onnx.load(path).graph.initializer if len(t.dims) in (2, 4))


@pytest.mark.full
@pytest.mark.parametrize(
    ("precision", "change"),
    [
        ("fp16", as_older_programs_write),
        pytest.param("fp16", all_in_nodes, marks=pytest.mark.full),
        pytest.param("bf16", as_older_programs_write, marks=pytest.mark.full),
        pytest.param("int8", with_small_outputs, marks=pytest.mark.full),
    ],
)
def test_a_precision(precision: str, change: Any, tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx", 13, change=change)
    options: dict[str, Any] = {"precision": precision}
    if precision == "int8":
        require_exact_int8()
        folder = tmp_path / "images"
        folder.mkdir()
        for photograph in photographs().values():
            shutil.copy(photograph, folder)
        options["calibrate"] = folder
    result = export_model(path, tmp_path / "ours.onnx", dataclasses.replace(FULL, **options))
    low = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "int8": TensorProto.INT8}
    layers = {"fp16": 5, "bf16": 2, "int8": 4}  # with the biases; bf16 has no convolution
    assert types_of(result.model)[low[precision]] == layers[precision]
    assert result.validation.passed
    assert result.validation.figures["psnr"] > 35
    assert any("opset was raised from 13 to 18" in warning for warning in result.warnings)


@pytest.mark.full
def test_a_weight_that_a_branch_reads_stays_beside_its_low_copy(tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx", 17, change=weight_in_branch)
    half = dataclasses.replace(FULL, precision="fp16")
    result = export_model(path, tmp_path / "ours.onnx", half)
    assert types_of(result.model)[TensorProto.FLOAT16] > 0
    assert result.validation.passed


def test_a_file_of_half_precision_is_told_so(tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx", shape=(1, 3, 16, 16), change=as_half)
    with pytest.raises(NystraError, match="it has no layers of float32 weights"):
        export_model(path, tmp_path / "ours.onnx", dataclasses.replace(FULL, precision="fp16"))


def test_a_normalization_in_pieces_is_not_fused_with_a_cast(tmp_path: Path) -> None:
    """onnxruntime would give a node of half precision a scale of float32."""

    def change(model: onnx.ModelProto) -> None:
        graph, one = model.graph, numpy_helper.from_array(np.ones(16, np.float32), "scales")
        graph.initializer.append(one)
        graph.initializer.append(numpy_helper.from_array(np.float32(2), "two"))
        graph.initializer.append(numpy_helper.from_array(np.float32(1e-5), "little"))
        first = graph.node[0]
        made, first.output[0] = first.output[0], "made"
        nodes = [
            helper.make_node("ReduceMean", ["made"], ["mean"], axes=[-1]),
            helper.make_node("Sub", ["made", "mean"], ["apart"]),
            helper.make_node("Pow", ["apart", "two"], ["squares"]),
            helper.make_node("ReduceMean", ["squares"], ["variance"], axes=[-1]),
            helper.make_node("Add", ["variance", "little"], ["more"]),
            helper.make_node("Sqrt", ["more"], ["deviation"]),
            helper.make_node("Div", ["apart", "deviation"], ["even"]),
            helper.make_node("Mul", ["even", "scales"], ["scaled"]),
            helper.make_node("Add", ["scaled", "scales"], [made]),
        ]
        for place, node in enumerate(nodes):
            graph.node.insert(1 + place, node)

    path = window_attention(tmp_path / "theirs.onnx", shape=(1, 3, 16, 16), change=change)
    options = dataclasses.replace(FULL, precision="fp16")
    assert export_model(path, tmp_path / "ours.onnx", options).validation.passed


def test_an_older_opset_has_newer_operators_in_pieces(tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        first = model.graph.node[0]
        model.graph.node.insert(1, helper.make_node("Gelu", ["made"], [first.output[0]]))
        first.output[0] = "made"

    path = window_attention(tmp_path / "theirs.onnx", 20, shape=(1, 3, 16, 16), change=change)
    options = dataclasses.replace(FULL, static=(1, 3, 16, 16), target="portable")
    result = export_model(path, tmp_path / "ours.onnx", options)
    image = np.random.default_rng(0).random((1, 3, 16, 16)).astype(np.float32)
    ours, theirs = (in_onnxruntime(file, image) for file in (result.model, path))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_constants_become_initializers(tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx", change=as_older_programs_write)
    model = read_file(path).model
    image = np.random.default_rng(0).random((1, 3, 16, 16)).astype(np.float32)
    expected = in_onnxruntime(path, image)
    make_initializers(model)
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["x"]
    assert {"Constant", "Identity"}.isdisjoint(node.op_type for node in model.graph.node)
    names = [node.name for node in model.graph.node]
    assert len({*names, ""}) == len(names) + 1
    held = tmp_path / "held.onnx"
    onnx.save(model, held)
    np.testing.assert_array_equal(in_onnxruntime(held, image), expected)
