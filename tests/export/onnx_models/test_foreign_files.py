"""Files of other programs in forms that are met in the wild, through the public function."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nystra.core.errors import NystraError, UnsupportedModelError
from nystra.export import ExportOptions, ExportResult, Plan, export_model, mechanism
from onnx_files import window_attention


def exported(path: Path) -> ExportResult:
    options = ExportOptions(Plan(mechanism("full")), speed=False)
    return export_model(path, path.with_name("out.onnx"), options)


def listed_as_inputs(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(value)


def listed_first(model: onnx.ModelProto) -> None:
    own = list(model.graph.input)
    del model.graph.input[:]
    listed_as_inputs(model)
    model.graph.input.extend(own)


def with_scalar_and_empty(model: onnx.ModelProto) -> None:
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.float32(1.0), "one"))
    graph.initializer.append(numpy_helper.from_array(np.zeros((0, 3), np.float32), "nothing"))
    first = graph.node[0]
    graph.node.insert(0, helper.make_node("Mul", [first.input[0], "one"], ["scaled"]))
    first.input[0] = "scaled"
    listed_as_inputs(model)


@pytest.mark.parametrize("change", [listed_first, with_scalar_and_empty])
def test_initializers_may_be_inputs_too(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None]
) -> None:
    result = exported(window_attention(tmp_path / "theirs.onnx", change=change))
    assert result.validation.passed


def test_a_shape_that_no_array_has_is_refused(tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        tensor = TensorProto(name="vast", data_type=TensorProto.FLOAT, dims=[0, 1 << 62])
        tensor.raw_data = b""
        model.graph.initializer.append(tensor)

    with pytest.raises(NystraError, match=r"'vast' .* is declared as 0x4611686018427387904"):
        exported(window_attention(tmp_path / "theirs.onnx", change=change))


def through(*nodes: onnx.NodeProto, result: str) -> Callable[[onnx.ModelProto], None]:
    """Return a change: nodes from "x" to a result whose mean is added to the image."""

    def change(model: onnx.ModelProto) -> None:
        graph = model.graph
        mean = helper.make_node("ReduceMean", [result], ["mean"], keepdims=0)
        added = helper.make_node("Add", ["x", "mean"], ["moved"])
        graph.node[0].input[0] = "moved"
        for place, node in enumerate([*nodes, mean, added]):
            graph.node.insert(place, node)
        graph.initializer.append(numpy_helper.from_array(np.int64(30), "rounds"))
        graph.initializer.append(numpy_helper.from_array(np.bool_(True), "go"))

    return change


def doubling() -> list[onnx.NodeProto]:
    names = ["x", *(f"twice_{number}" for number in range(40))]
    return [
        helper.make_node("Concat", [one, one], [other], axis=0) for one, other in pairwise(names)
    ]


def loop() -> onnx.NodeProto:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["again"]),
            helper.make_node("Concat", ["held", "held"], ["more"], axis=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("held", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("more", TensorProto.FLOAT, None),
        ],
    )
    return helper.make_node("Loop", ["rounds", "go", "x"], ["grown"], body=body)


@pytest.mark.parametrize(
    "change",
    [through(*doubling(), result="twice_39"), through(loop(), result="grown")],
    ids=["nodes", "loop"],
)
def test_a_graph_that_doubles_is_refused_before_it_fills_the_memory(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None]
) -> None:
    with pytest.raises(UnsupportedModelError, match=r"Concat .*: a result of \d+x3x64x64 was dec"):
        exported(window_attention(tmp_path / "theirs.onnx", change=change))


def test_a_file_that_runs_at_one_size_only_is_read_as_such(tmp_path: Path) -> None:
    """Sizes that a tracer baked into the graph, although the inputs are declared free."""

    def change(model: onnx.ModelProto) -> None:
        graph = model.graph
        whole = numpy_helper.from_array(np.array([1, 3, 64, 64]), "baked")
        graph.initializer.append(whole)
        graph.node.insert(0, helper.make_node("Reshape", ["x", "baked"], ["same"]))
        graph.node[1].input[0] = "same"
        graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"

    result = exported(window_attention(tmp_path / "theirs.onnx", change=change))
    assert result.validation.passed
    said = "its free axes run at batch 1, height 64, width 64 only, so it is read as a file of"
    assert any(said in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("operator", "domain", "advice"),
    [
        ("Conv", "com.microsoft.nchwc", "onnxruntime optimized the file for one kind of machine"),
        ("FusedConv", "com.microsoft", "onnxruntime optimized the file for one kind of machine"),
        ("DynamicQuantizeLinear", "", "the file is quantized: give the float32 file that it"),
        ("DequantizeLinear", "", "the file is quantized"),
        ("MatMulIntegerToFloat", "com.microsoft", "the file is quantized"),
    ],
)
def test_files_that_onnxruntime_rewrote_are_refused_with_advice(
    tmp_path: Path, operator: str, domain: str, advice: str
) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.node[0].op_type, model.graph.node[0].domain = operator, domain
        model.opset_import.append(helper.make_opsetid(domain or "com.microsoft", 1))

    with pytest.raises(UnsupportedModelError, match=f"not supported; {advice}"):
        exported(window_attention(tmp_path / "theirs.onnx", change=change))


@pytest.mark.parametrize("opset", [pytest.param(21, marks=pytest.mark.full), 25])
def test_later_opsets_are_read(tmp_path: Path, opset: int) -> None:
    result = exported(window_attention(tmp_path / "theirs.onnx", opset))
    assert result.validation.passed
    (version,) = (e.version for e in onnx.load(str(result.model)).opset_import if e.domain == "")
    assert version == opset


def test_older_opsets_are_raised(tmp_path: Path) -> None:
    result = exported(window_attention(tmp_path / "theirs.onnx", 12))
    assert result.validation.passed
    assert any("opset 12 was raised to 13 by onnx.version_conv" in w for w in result.warnings)
