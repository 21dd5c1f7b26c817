"""Files of other programs in forms that are met in the wild, through the public function."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from later import release
from nystra.core.errors import NystraError, UnsupportedModelError
from nystra.export import (
    ExportOptions,
    ExportResult,
    Plan,
    export_model,
    mechanism,
    replacement_timing,
)
from nystra.export.attention.site import find_sites
from nystra.export.load.onnx_file import load_onnx
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


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            through(*doubling(), result="twice_39"),
            r"Concat .twice_\d+. gives \d+x3x64x64,",
        ),
        *release((through(loop(), result="grown"), "its values need more than 1.5 GB at one time")),
    ],
    ids=["nodes", "loop"],
)
def test_a_graph_that_doubles_is_refused_before_it_fills_the_memory(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None], message: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        exported(window_attention(tmp_path / "theirs.onnx", change=change))


@pytest.mark.full
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
    said = "its free axes run at batch 1, height 64, width 64 only, so they are read as fixed"
    assert any(said in warning for warning in result.warnings)


def quantized() -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", ["x", "step"], ["whole"]),
        helper.make_node("DequantizeLinear", ["whole", "step"], ["result"]),
    ]


def branch() -> list[onnx.NodeProto]:
    value = helper.make_tensor_value_info("chosen", TensorProto.FLOAT, None)
    then, other = (
        helper.make_graph([helper.make_node(name, ["x"], ["chosen"])], name, [], [value])
        for name in ("Sin", "Cos")
    )
    return [helper.make_node("If", ["go"], ["result"], then_branch=then, else_branch=other)]


@pytest.mark.full
@pytest.mark.parametrize(
    "nodes",
    [
        quantized(),
        branch(),
        [helper.make_node("Einsum", ["x"], ["result"], equation="bchw->bc")],
        [helper.make_node("TopK", ["x", "one"], ["result", "at"])],
        [helper.make_node("BiasGelu", ["x", "scales"], ["result"], domain="com.microsoft")],
    ],
    ids=lambda nodes: nodes[0].op_type,
)
def test_operators_outside_of_attention_are_left_alone(
    tmp_path: Path, nodes: list[onnx.NodeProto]
) -> None:
    def change(model: onnx.ModelProto) -> None:
        through(*nodes, result="result")(model)
        held = {"step": np.float32(0.1), "one": np.array([1]), "scales": np.ones(64, np.float32)}
        for name, array in held.items():
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))

    fixed = (1, 3, 64, 64)
    loaded = load_onnx(window_attention(tmp_path / "theirs.onnx", shape=fixed, change=change), {})
    assert [site.path for site in find_sites(loaded.network)] == ["body.attn"]
    assert not loaded.warnings


@pytest.mark.release
def test_a_recognizer_of_text_is_read(tmp_path: Path) -> None:
    """A height of 48 only, any width, and an output (1, T, classes)."""

    def change(model: onnx.ModelProto) -> None:
        graph = model.graph
        rows = np.arange(48, dtype=np.float32).reshape(1, 1, 48, 1) / 48
        graph.initializer.append(numpy_helper.from_array(rows, "rows"))
        graph.node.insert(0, helper.make_node("Add", ["x", "rows"], ["same"]))
        graph.node[1].input[0] = "same"
        last = graph.node[-1]
        last.output[0] = "map"
        graph.node.append(helper.make_node("ReduceMean", ["map"], ["line"], axes=[2], keepdims=0))
        graph.node.append(helper.make_node("Transpose", ["line"], ["y"], perm=[0, 2, 1]))
        for axis in (0, 2, 3):
            graph.input[0].type.tensor_type.shape.dim[axis].dim_value = -1
        sides = ["b", "T", 3]
        graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, sides))

    path = window_attention(tmp_path / "theirs.onnx", change=change)
    result = exported(path)
    assert result.validation.passed
    facts = result.source.loaded.facts
    assert (facts.task, facts.outputs[0].channels) == ("other", 3)
    assert facts.inputs[0].lengths == {"channels": 3, "height": 48}
    assert [site.path for site in find_sites(result.source.loaded.network)] == ["body.attn"]


def in_a_function(model: onnx.ModelProto) -> None:
    """Let the whole graph be one function, with names inside that are those outside."""
    graph = model.graph
    given = [value.name for value in (*graph.input, *graph.initializer)]
    results = [value.name for value in graph.output]
    nodes, opsets = list(graph.node), list(model.opset_import)
    model.functions.append(helper.make_function("own", "F", given, results, nodes, opsets))
    del graph.node[:]
    graph.node.append(helper.make_node("F", given, results, domain="own"))
    model.opset_import.add(domain="own", version=1)


def without_names(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.name = ""


def behind_a_loop(model: onnx.ModelProto) -> None:
    """Halve the image twice, in a loop."""
    graph = model.graph
    kinds = {"count": TensorProto.INT64, "go": TensorProto.BOOL, "going": TensorProto.BOOL}
    values = {name: helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()}
    maps = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yz"]
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["going"]),
            helper.make_node("Mul", ["y", "half"], ["z"]),
        ],
        "body",
        [values["count"], values["go"], maps[0]],
        [values["going"], maps[1]],
    )
    for name, number in (
        ("half", np.float32(0.5)),
        ("trips", np.int64(2)),
        ("always", np.bool_(1)),
    ):
        graph.initializer.append(numpy_helper.from_array(np.array(number), name))
    first = graph.node[0]
    loop = helper.make_node("Loop", ["trips", "always", first.input[0]], ["halved"], body=body)
    graph.node.insert(0, loop)
    graph.node[1].input[0] = "halved"


@pytest.mark.full
@pytest.mark.parametrize("change", [in_a_function, without_names, behind_a_loop])
def test_forms_of_a_graph_give_the_same_numbers(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None]
) -> None:
    path = window_attention(tmp_path / "theirs.onnx", change=change)
    onnx.checker.check_model(onnx.load(path))
    assert exported(path).validation.passed


@pytest.mark.parametrize("opset", [pytest.param(21, marks=pytest.mark.full), 25])
def test_later_opsets_are_read(tmp_path: Path, opset: int) -> None:
    result = exported(window_attention(tmp_path / "theirs.onnx", opset))
    assert result.validation.passed
    (version,) = (e.version for e in onnx.load(str(result.model)).opset_import if e.domain == "")
    assert version == opset


def as_written_then(model: onnx.ModelProto) -> None:
    """Let a file be as those of opset 7 to 9, in place: ends of slices are attributes, axes count
    from the front, and initializers are listed as inputs."""
    graph = model.graph
    held = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Slice":
            for name, ends in zip(("starts", "ends"), node.input[1:], strict=True):
                values = numpy_helper.to_array(held[ends]).tolist()
                node.attribute.append(helper.make_attribute(name, values))
            del node.input[1:]
        if node.op_type == "Softmax":
            node.attribute[0].i = 3
    for name, tensor in held.items():
        graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    model.ir_version = 3


@pytest.mark.parametrize("opset", [7, pytest.param(9, marks=pytest.mark.full)])
def test_the_oldest_opsets_are_read(tmp_path: Path, opset: int) -> None:
    path = window_attention(tmp_path / "theirs.onnx", opset, change=as_written_then)
    onnx.checker.check_model(onnx.load(path))
    result = exported(path)
    assert result.validation.passed
    assert [site.path for site in find_sites(result.source.loaded.network)] == ["body.attn"]


def test_an_older_opset_is_raised_if_new_nodes_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[2.0], [1.0]])
    result = exported(window_attention(tmp_path / "theirs.onnx", 12))
    assert result.validation.passed
    assert any("opset was raised from 12 to 18" in warning for warning in result.warnings)
