"""The ONNX bodies as functions: what TensorRT and onnxruntime require of them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from nystra.core.errors import NystraError
from nystra.plugins.operators import OPERATORS, find_schema
from nystra.plugins.operators.functions import operator_bodies, operator_body

FORBIDDEN = {"If", "Loop", "Scan", "Einsum", "Split"}  # TensorRT wants Split's sizes constant
ALLOWED = {"NystraPatchMatch": {"Loop"}}


def bodies(opset: int) -> dict[str, onnx.FunctionProto]:
    return {name: operator_body(name, opset) for name in OPERATORS}


def subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs in attributes of the nodes, and those inside them."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g
                yield from subgraphs(attribute.g.node)


def all_nodes(function: onnx.FunctionProto) -> list[onnx.NodeProto]:
    """The nodes of a body, those of its loops included."""
    inner = [node for graph in subgraphs(function.node) for node in graph.node]
    return [*function.node, *inner]


@pytest.mark.parametrize("opset", [18, 20, 25])
def test_form(opset: int) -> None:
    for name, function in bodies(opset).items():
        schema = find_schema(name)
        assert (function.domain, function.name, function.overload) == ("nystra", name, "")
        assert [(o.domain, o.version) for o in function.opset_import] == [("", opset)]
        assert len(function.input) == len(schema.inputs)
        assert len(function.output) == len(schema.outputs)
        assert set(function.attribute) == {
            *(attribute.name for attribute in schema.attributes),
            "plugin_version",
            "plugin_namespace",
        }
        assert function.node[-1].op_type == "CastLike"
        for node in all_nodes(function):
            assert node.domain == ""
            assert node.op_type not in FORBIDDEN - ALLOWED.get(name, set())
            if node.op_type == "Constant":
                (value,) = node.attribute
                assert value.ref_attr_name or value.type == onnx.AttributeProto.TENSOR


def test_tensor_names_are_unique_over_all_bodies() -> None:
    seen: set[str] = set()
    for name, function in bodies(20).items():
        outputs = [output for node in all_nodes(function) for output in node.output]
        inner = [value.name for graph in subgraphs(function.node) for value in graph.input]
        names = [*function.input, *outputs, *inner]
        assert len(set(names)) == len(names)
        assert not seen & set(names)
        assert all(tensor.startswith(f"{name}_") for tensor in names)
        seen |= set(names)


def test_every_attribute_but_the_revision_is_read() -> None:
    for name, function in bodies(20).items():
        read = {a.ref_attr_name for node in all_nodes(function) for a in node.attribute} - {""}
        schema = find_schema(name)
        assert read == {attribute.name for attribute in schema.attributes} - {"revision"}


def test_exact_attention_of_large_windows_is_a_loop() -> None:
    sizes = dict.fromkeys(("window_h", "window_w"), 32)
    large = onnx.helper.make_node("NystraWindowSoftmax", [], [], domain="nystra", **sizes)
    small = onnx.helper.make_node("NystraWindowSoftmax", [], [], domain="nystra", window_h=31)
    for nodes, loops in (([small], 0), ([small, large], 1)):
        function = operator_body("NystraWindowSoftmax", 20, nodes)
        assert [node.op_type for node in all_nodes(function)].count("Loop") == loops
        outputs = [output for node in all_nodes(function) for output in node.output]
        assert len(set(outputs)) == len(outputs)


def test_bodies_are_reproducible_and_small() -> None:
    for name, function in bodies(20).items():
        assert function.SerializeToString() == bodies(20)[name].SerializeToString()
        assert len(function.node) < 600  # cluster: three rounds, one after the other
        assert len(function.SerializeToString()) < 100_000


def test_other_opsets_are_refused() -> None:
    with pytest.raises(NystraError, match="no body for opset 17; expected one of 18, 19, 20"):
        bodies(17)


def test_nodes_have_names_that_stay_apart_where_bodies_are_inlined(tmp_path: Path) -> None:
    """Readers of what onnxruntime writes back stop at two nodes of one name."""
    path = tmp_path / "opened.onnx"
    for name, function in bodies(20).items():
        names = [node.name for node in all_nodes(function)]
        assert all(names)
        assert len(set(names)) == len(names), name
    schema = find_schema("NystraPinv")
    attributes = {each.name: each.default for each in schema.attributes}
    nodes = [
        onnx.helper.make_node(
            schema.name, [f"x{n}"], [f"x{n + 1}"], f"site{n}", domain="nystra", **attributes
        )
        for n in range(2)
    ]
    info = onnx.helper.make_tensor_value_info
    values = [info(f"x{n}", onnx.TensorProto.FLOAT, [1, 4, 4]) for n in (0, 2)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "twice", values[:1], values[1:]),
        functions=[bodies(20)[schema.name]],
        opset_imports=[onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("nystra", 1)],
        ir_version=10,
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(path)
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inlined = [node.name for node in onnx.load(path).graph.node]
    assert len(inlined) > 40
    assert len(set(inlined)) == len(inlined)


@pytest.mark.parametrize("name", ["NystraWindowNystrom", "NystraWindowNystromformer"])
def test_the_body_of_nodes_holds_the_pseudoinverse_once_for_each_setting(name: str) -> None:
    """Its attributes are numbers: TensorRT reads those that a function passes on as 0."""
    nodes = [
        onnx.helper.make_node(name, [], [], domain="nystra", iterations=iterations, batch_init=init)
        for iterations, init in ((6, 0), (2, 1), (6, 0))
    ]
    body, inverse = operator_bodies(name, 20, nodes)
    assert inverse.name == "NystraPinv"
    assert {(o.domain, o.version) for o in body.opset_import} == {("", 20), ("nystra", 1)}
    held = [node for node in body.node if node.domain == "nystra"]
    values = [{a.name: onnx.helper.get_attribute_value(a) for a in node.attribute} for node in held]
    assert [(v["iterations"], v["batch_init"], v["revision"]) for v in values] == [
        (2, 1, 1),
        (6, 0, 1),
    ]
    assert not any(a.ref_attr_name for node in held for a in node.attribute)
    assert [f.name for f in operator_bodies("NystraWindowSoftmax", 20, [])] == [
        "NystraWindowSoftmax"
    ]
