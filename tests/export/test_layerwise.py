"""``--layerwise``: the report names the layer with the planted fault as the first."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from native_nodes import library
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.export.tracing.bodies import attach_bodies
from nystra.export.validate import layerwise
from nystra.export.validate.layerwise import compare_layers
from nystra.plugins.operators.schema import node_attributes
from nystra.runtime import backends
from nystra.runtime.backends.ort_cpu import OrtCpuBackend
from nystra.runtime.engines import build as engines
from nystra.runtime.engines.child import ask
from nystra.runtime.engines.refusal import refusal_of
from nystra.runtime.model.references import ReferenceCase, References, write_references
from nystra.runtime.session_spec import SessionSpec
from tensorrt_tools import SDKS, cases, operator_model, plugins, use_sdk

pytest.importorskip("polygraphy", reason="polygraphy is not installed (nystra[layerwise])")

GAIN = [0.9, -1.1, 1.3]


def save_layers(path: Path, dtype: int = TensorProto.FLOAT, operator: str = "NystraDouble") -> Path:
    """Write five layers, one of them a nystra node with its body, one integer and one boolean."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    nodes = [
        helper.make_node("Mul", ["input", "gain0"], ["a"], "first"),
        helper.make_node(operator, ["a"], ["b"], "layers.0.attn", domain="nystra"),
        helper.make_node("Mul", ["b", "gain1"], ["c"], "second"),
        helper.make_node("Shape", ["c"], ["sizes"], "sizes"),
        helper.make_node("Greater", ["c", "zero"], ["positive"], "compare"),
        helper.make_node("Where", ["positive", "c", "zero"], ["d"], "relu"),
        helper.make_node("Expand", ["gain2", "sizes"], ["e"], "expand"),
        helper.make_node("Mul", ["d", "e"], ["output"], "last"),
    ]
    constants = {"zero": 0.0, **{f"gain{place}": gain for place, gain in enumerate(GAIN)}}
    shape = ["b", 3, "h", "w"]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("input", dtype, shape)],
        [helper.make_tensor_value_info("output", dtype, shape)],
        [numpy_helper.from_array(np.array(v, kind), name) for name, v in constants.items()],
    )
    double = [helper.make_node("Add", ["x", "x"], ["y"])]
    opsets = [helper.make_opsetid("", 20)]
    function = helper.make_function("nystra", operator, ["x"], ["y"], double, opsets)
    opsets = [*opsets, helper.make_opsetid("nystra", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[function])
    onnx.save(model, path)
    return path


def recorded(**meta: Any) -> References:
    """References with images of three sizes; the outputs are not used."""
    random = np.random.default_rng(0)
    cases = [
        ReferenceCase(
            {"input": random.integers(1, 256, (1, 3, *size), dtype=np.uint8)},
            {"output": np.zeros((1, 3, *size), np.float32)},
        )
        for size in ((12, 20), (8, 8), (9, 11))
    ]
    return References(tuple(cases), {"tolerances": [1e-4] * 3, **meta})


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A backend ``odd`` that runs the file with the given initializers."""
    changed: dict[str, Any] = {}

    class Odd(OrtCpuBackend):
        def load(self) -> None:
            model = onnx.load(self.path)
            for tensor in model.graph.initializer:
                if tensor.name in changed:
                    kind = numpy_helper.to_array(tensor).dtype
                    tensor.raw_data = np.array(changed[tensor.name], kind).tobytes()
            self.path = self.path.with_name("odd.onnx")
            onnx.save(model, self.path)
            super().load()

    monkeypatch.setitem(backends._BACKENDS, "odd", ("odd", "Odd"))
    module = f"{backends.__name__}.odd"
    monkeypatch.setitem(sys.modules, module, type(sys)("odd"))
    monkeypatch.setattr(sys.modules[module], "Odd", Odd, raising=False)
    return changed


def test_equal_ways_pass_at_every_size(odd: dict[str, Any], tmp_path: Path) -> None:
    path = save_layers(tmp_path / "m.onnx")
    report = compare_layers(SessionSpec(path, "odd", 1), recorded())
    assert report.passed
    assert [case.shapes["input"][2:] for case in report.cases] == [[8, 8], [9, 11], [12, 20]]
    for case in report.cases:
        assert [layer.tensor for layer in case.layers] == [
            *"abc",
            "sizes",
            "positive",
            *"de",
            "output",
        ]
        assert [layer.dtype for layer in case.layers[3:5]] == ["int64", "bool"]
        assert case.layers[1].operator == "nystra.NystraDouble"
    assert report.as_dict()["first"] is None


@pytest.mark.parametrize(
    ("name", "value", "tensor", "node", "finding"),
    [
        ("gain0", GAIN[0] * 1.001, "a", "first", "difference is 0.000897, allowed 8.96e-05"),
        ("gain1", GAIN[1] * 1.001, "c", "second", "largest difference"),
        ("gain1", float("nan"), "c", "second", "192 of 192 values are NaN, in the reference 0"),
        ("gain1", float("inf"), "c", "second", "the largest difference is inf"),
        ("gain2", GAIN[2] * 0.999, "e", "expand", "allowed 0.00013"),
        ("gain1", -GAIN[1], "c", "second", "allowed 0.000197"),
    ],
)
def test_the_planted_fault_is_named(
    odd: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: float,
    tensor: str,
    node: str,
    finding: str,
) -> None:
    path = save_layers(tmp_path / "m.onnx")
    references = recorded()
    write_references(path.with_suffix(".npz"), references.cases, references.meta)
    odd[name] = value
    command = ["validate", str(path), "--layerwise", "--backend", "odd", "--threads", "1"]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert f"first difference: node {node} (" in out
    assert f"output {tensor}: " in out
    assert finding in out
    assert main([*command, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["passed"], document["first"]["node"]) == (False, node)
    assert len(document["cases"]) == 1, "it ends with the first size where a layer departs"
    layers = document["cases"][0]["layers"]
    assert next(layer["tensor"] for layer in layers if layer["departs"]) == tensor


def test_a_difference_within_the_share_passes(odd: dict[str, Any], tmp_path: Path) -> None:
    path = save_layers(tmp_path / "m.onnx")
    odd["gain1"] = GAIN[1] * (1 + 5e-5)
    assert compare_layers(SessionSpec(path, "odd", 1), recorded()).passed
    assert not compare_layers(SessionSpec(path, "odd", 1), recorded(), 2e-5).passed
    loose = recorded(tolerances=[1e-4, 1e-4, 1e-3])
    odd["gain1"] = GAIN[1] * (1 + 5e-4)
    report = compare_layers(SessionSpec(path, "odd", 1), loose)
    assert [bool(case.departing) for case in report.cases] == [True], "each size has its own"
    assert report.cases[0].shapes["input"][2:] == [8, 8]


@pytest.mark.parametrize(("gain", "passed"), [(1 + 2.0**-10, True), (1 + 2.0**-7, False)])
def test_float16_has_a_wider_share_and_a_bound_of_the_mean(
    odd: dict[str, Any], tmp_path: Path, gain: float, passed: bool
) -> None:
    path = save_layers(tmp_path / "m.onnx", TensorProto.FLOAT16)
    odd["gain1"] = GAIN[1] * gain
    report = compare_layers(SessionSpec(path, "odd", 1), recorded())
    assert report.passed == passed
    layer = report.cases[0].layers[2]
    assert (layer.tensor, layer.dtype) == ("c", "float16")
    assert layer.allowed == layer.largest / 32
    assert layer.mean_allowed == layer.largest / 1024
    assert bool(layer.finding) != passed
    assert layer.max_abs < layer.allowed, "it is the mean that shows the fault"
    assert not compare_layers(SessionSpec(path, "odd", 1), recorded(), 1e-4).passed


def test_behind_a_search_the_mean_counts_too(odd: dict[str, Any], tmp_path: Path) -> None:
    path = save_layers(tmp_path / "m.onnx", operator="NystraPatchMatch")
    spec, means = SessionSpec(path, "odd", 1), {"mean_tolerances": [1e-3] * 3}
    odd["gain1"] = GAIN[1] * (1 + 5e-4)
    assert compare_layers(spec, recorded(**means)).passed
    assert not compare_layers(spec, recorded()).passed
    odd.clear()
    odd["gain0"] = GAIN[0] * (1 + 5e-4)
    report = compare_layers(spec, recorded(**means))
    assert report.cases[0].departing[0].node == "first", "it lies before the search"
    odd.clear()
    odd["zero"] = -5.0  # the condition departs everywhere
    report = compare_layers(spec, recorded(**means))
    assert report.cases[0].departing[0].tensor == "positive"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"image": (1, 3, 8, 8)}, r"got the inputs \['image'\], expected \['input'\]"),
        ({"input": (1, 4, 8, 8)}, r"got the shape \(1, 4, 8, 8\), expected"),
    ],
)
def test_references_of_another_model(
    odd: dict[str, Any], tmp_path: Path, inputs: dict[str, tuple[int, ...]], message: str
) -> None:
    path = save_layers(tmp_path / "m.onnx")
    feeds = {name: np.zeros(shape, np.float32) for name, shape in inputs.items()}
    with pytest.raises(NystraError, match=message):
        compare_layers(SessionSpec(path, "odd", 1), References((ReferenceCase(feeds, {}),)))


def test_sizes_too_large_for_the_memory_are_said(
    odd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_layers(tmp_path / "m.onnx")
    monkeypatch.setattr(layerwise, "available_memory", lambda: 50_000)
    report = compare_layers(SessionSpec(path, "odd", 1), recorded())
    assert [bool(case.skipped) for case in report.cases] == [False, False, True]
    assert "are available" in report.cases[2].skipped


def test_what_cannot_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_layers(tmp_path / "m.onnx")
    references = recorded()
    write_references(path.with_suffix(".npz"), references.cases, references.meta)
    command = ["validate", str(path), "--layerwise"]
    monkeypatch.setenv("NYSTRA_LIBRARY_DIR", str(tmp_path))
    monkeypatch.setattr("nystra.plugins.library.resources.files", lambda _name: tmp_path)
    for more, code, message in [
        (["--library", "none"], 2, "both sides are the same"),
        ([], 3, "the operator library is not built"),
        (["--backend", "abacus"], 2, "unknown backend 'abacus'"),
        (["--sheet", "a.png"], 2, "omit --sheet"),
        (["--references", "none.npz"], 2, "no recorded references"),
    ]:
        assert main([*command, *more]) == code, more
        assert message in capsys.readouterr().err, more
    monkeypatch.setitem(sys.modules, "polygraphy.comparator", None)
    assert main(command) == 3
    assert re.search("pip install .*'polygraphy>=", capsys.readouterr().err)


def test_a_wrong_body_is_named_by_the_library(tmp_path: Path) -> None:
    library()  # or skip
    nodes = [
        helper.make_node("Add", ["input", "eye"], ["matrix"], "make"),
        helper.make_node(
            "NystraPinv",
            ["matrix"],
            ["inverse"],
            "layers.1.pinv",
            domain="nystra",
            **node_attributes("NystraPinv", iterations=6),
        ),
        helper.make_node("MatMul", ["matrix", "inverse"], ["output"], "product"),
    ]
    shape = ["b", 1, 6, 6]
    graph = helper.make_graph(
        nodes,
        "pinv",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.eye(6, dtype=np.float32), "eye")],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("nystra", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    attach_bodies(model, 20)
    pixels = np.random.default_rng(0).integers(0, 25, (2, 1, 6, 6), dtype=np.uint8)
    references = References((ReferenceCase({"input": pixels}, {}),), {"tolerances": [1e-4]})
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    report = compare_layers(SessionSpec(path, "ort-cpu", 1), references)
    assert report.passed
    assert "is loaded" in report.candidate
    assert [layer.tensor for layer in report.cases[0].layers] == ["matrix", "inverse", "output"]
    damaged = 0
    for node in model.functions[0].node:
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.t.data_type == TensorProto.FLOAT:
                array = numpy_helper.to_array(attribute.t)
                if np.any(array == 13.0):
                    changed = np.where(array == 13.0, np.float32(13.1), array)
                    attribute.t.CopyFrom(numpy_helper.from_array(changed, attribute.t.name))
                    damaged += 1
    assert damaged
    onnx.save(model, path)
    report = compare_layers(SessionSpec(path, "ort-cpu", 1), references)
    first = report.cases[0].departing[0]
    assert (first.node, first.tensor) == ("layers.1.pinv", "inverse")


def test_an_engine_of_the_marked_file_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_layers(tmp_path / "m.onnx")
    made: list[Any] = []

    class Engine(OrtCpuBackend):
        engine = "tensorrt"

        def __init__(self, spec: SessionSpec) -> None:
            made.append(Path(str(spec.library)))
            super().__init__(replace(spec, library=None))

    def build(model: Any, options: Any, announce: Any) -> None:
        made.extend([model.library, options, onnx.load(model.path)])
        announce("build")

    monkeypatch.setattr(layerwise, "backend_class", lambda _name: ("tensorrt", Engine))
    monkeypatch.setattr(backends, "backend_class", fake_table(Engine))
    monkeypatch.setattr(engines, "build_engine", build)
    plugin = tmp_path / "libnystra_trt.so"
    plugin.touch()
    said: list[str] = []
    report = compare_layers(SessionSpec(path, "tensorrt", 1, plugin), recorded(), None, said.append)
    assert report.passed
    library, options, marked, given = made
    assert library == plugin == Path(given)
    assert options.backend == "tensorrt"
    assert options.shapes.min_shapes == {"input": (1, 3, 8, 8)}
    assert options.shapes.opt_shapes == {"input": (1, 3, 12, 20)}
    assert options.shapes.max_shapes == {"input": (1, 3, 12, 20)}
    assert [value.name for value in marked.graph.output] == [*"abcde", "output"]
    assert all(
        value.type.tensor_type.elem_type == TensorProto.FLOAT for value in marked.graph.output
    )
    assert [function.name for function in marked.functions] == ["NystraDouble"]
    assert "tensorrt: build" in said


def fake_table(engine: Any) -> Any:
    """The table of backends with an engine that onnxruntime runs."""
    rows: Mapping[str, Any] = {"tensorrt": engine, "ort-cpu": OrtCpuBackend}
    return lambda name, _artifact: (name, rows[name])


@pytest.mark.parametrize("sdk", SDKS)
def test_real_tensorrt_takes_the_marked_file(
    sdk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = use_sdk(sdk, monkeypatch)
    path = operator_model(tmp_path / "m.onnx", ["NystraWindowNystrom"], "float16")
    model = onnx.load(path)
    output = model.graph.output.pop()
    more = [
        helper.make_node("Shape", [output.name], ["sizes"]),
        helper.make_node("Reshape", [output.name, "sizes"], ["same"]),
        helper.make_node("Mul", ["same", "same"], ["squared"]),
    ]
    model.graph.node.extend(more)
    output.name = "squared"
    model.graph.output.append(output)
    marked = layerwise._mark(layerwise._Polygraphy(), model, floats_only=True)
    onnx.save(marked, path)
    request = {"backend": backend, "model": str(path), "library": str(plugins())}
    shapes = cases(["NystraWindowNystrom"])[0]
    answer = ask({**request, "do": "parse", "cases": [shapes]})
    assert refusal_of(answer) is None
    names = [model.graph.node[0].output[0], "same", "squared"]
    assert [(output["name"], output["dtype"]) for output in answer.values["outputs"]] == [
        (name, "float16") for name in names
    ]
    assert answer.values["plugins"] == ["node_NystraWindowNystrom"]
    assert answer.values["shapes"] == [[[2, 16, 8, 6]] * 3]


def test_a_file_that_is_no_model(tmp_path: Path, odd: dict[str, Any]) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08\x0ano protobuf")
    with pytest.raises(NystraError, match="cannot read the model"):
        compare_layers(SessionSpec(tmp_path / "m.onnx", "odd", 1), recorded())
