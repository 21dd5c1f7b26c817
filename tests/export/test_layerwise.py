"""``--layerwise`` names the layer with the planted fault as the first."""

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
from nystra.runtime.compiled.model import EngineModel, EngineShapes
from nystra.runtime.engines import build as engines
from nystra.runtime.engines.builder import find_builder
from nystra.runtime.model.references import ReferenceCase, References, write_references
from nystra.runtime.session import Session
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
        helper.make_node("Size", ["c"], ["count"], "size"),
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


def test_equal_ways_pass_at_the_smallest_size(odd: dict[str, Any], tmp_path: Path) -> None:
    path = save_layers(tmp_path / "m.onnx")
    report = compare_layers(SessionSpec(path, "odd", 1), recorded())
    assert report["first"] is None
    assert report["size"] == "8x8"
    assert report["compared"] == 9, "integers, a single one, and booleans too"


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "value", "tensor", "node", "finding"),
    [
        ("gain0", GAIN[0] * 1.001, "a", "first", "difference is 0.000897, allowed 8.96e-05"),
        ("gain1", GAIN[1] * 1.001, "c", "second", "largest difference"),
        ("gain1", float("nan"), "c", "second", "the largest difference is nan"),
        ("gain1", float("inf"), "c", "second", "the largest difference is inf"),
        ("gain2", GAIN[2] * 0.999, "e", "expand", "allowed 0.00013"),
        ("gain1", -GAIN[1], "c", "second", "allowed 0.000197"),
        ("zero", -5.0, "positive", "compare", "the largest difference is 1, allowed 0"),
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
    assert document["passed"] is False
    assert document["first"].startswith(f"node {node} (")
    assert document["compared"] < 9, "it ends with the first tensor that differs"


def test_a_difference_within_the_share_passes(odd: dict[str, Any], tmp_path: Path) -> None:
    path = save_layers(tmp_path / "m.onnx")
    spec = SessionSpec(path, "odd", 1)
    odd["gain1"] = GAIN[1] * (1 + 5e-5)
    assert compare_layers(spec, recorded())["first"] is None
    assert compare_layers(spec, recorded(), 2e-5)["first"] is not None
    odd["gain1"] = GAIN[1] * (1 + 5e-4)
    assert compare_layers(spec, recorded(tolerances=[1e-3, 1e-4, 1e-4]))["first"] is not None
    assert compare_layers(spec, recorded(tolerances=[1e-4, 1e-3, 1e-4]))["first"] is None, (
        "of that size"
    )


@pytest.mark.parametrize(("gain", "passed"), [(1 + 2.0**-6, True), (1 + 2.0**-4, False)])
def test_float16_has_a_wider_share(
    odd: dict[str, Any], tmp_path: Path, gain: float, passed: bool
) -> None:
    path = save_layers(tmp_path / "m.onnx", TensorProto.FLOAT16)
    odd["gain1"] = GAIN[1] * gain
    assert (compare_layers(SessionSpec(path, "odd", 1), recorded())["first"] is None) == passed
    assert compare_layers(SessionSpec(path, "odd", 1), recorded(), 1e-4)["first"] is not None


def test_another_shape_is_named(
    odd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second session gives one tensor less."""
    path = save_layers(tmp_path / "m.onnx")
    whole, calls = Session.run, []

    def run(session: Session, feeds: Any) -> Any:
        calls.append(session)
        outputs = whole(session, feeds)
        return outputs if len(calls) == 1 else {**outputs, "d": outputs["d"][..., 1:]}

    monkeypatch.setattr(Session, "run", run)
    report = compare_layers(SessionSpec(path, "odd", 1), recorded())
    assert report["first"] == "node relu (Where), output d: the shapes differ"


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
    attach_bodies(model)
    pixels = np.random.default_rng(0).integers(0, 25, (2, 1, 6, 6), dtype=np.uint8)
    references = References((ReferenceCase({"input": pixels}, {}),), {"tolerances": [1e-4]})
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    report = compare_layers(SessionSpec(path, "ort-cpu", 1), references)
    assert report["first"] is None
    assert "is loaded" in report["candidate"]
    assert report["compared"] == 3
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
    assert report["first"].startswith("node layers.1.pinv (nystra.NystraPinv), output inverse: ")


def test_an_engine_of_the_marked_file_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_layers(tmp_path / "m.onnx")
    made: list[Any] = []

    class Asked:
        module = property(lambda _self: made.append("tensorrt"))

    class Engine(OrtCpuBackend):
        engine = Asked()

        def __init__(self, spec: SessionSpec) -> None:
            made.append(Path(str(spec.library)))
            super().__init__(replace(spec, library=None))

    def build(model: Any, options: Any, progress: Any) -> None:
        made.extend([model.library, options, onnx.load(model.path)])
        progress("build")

    monkeypatch.setattr(layerwise, "backend_class", lambda _name: ("tensorrt", Engine))
    monkeypatch.setattr(layerwise, "find_backend", lambda _name: Engine)
    monkeypatch.setattr(backends, "backend_class", fake_table(Engine))
    monkeypatch.setattr(engines, "build_engine", build)
    plugin = tmp_path / "libnystra_trt.so"
    plugin.touch()
    said: list[str] = []
    report = compare_layers(SessionSpec(path, "tensorrt", 1, plugin), recorded(), None, said.append)
    assert report["first"] is None
    builder, library, options, marked, given = made
    assert builder == "tensorrt"
    assert library == plugin == Path(given)
    assert options.backend == "tensorrt"
    assert options.shapes == EngineShapes(opt_shapes={"input": (1, 3, 8, 8)})
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
    marked = layerwise.mark(model, floats_only=True)
    onnx.save(marked, path)
    shapes = cases(["NystraWindowNystrom"])[0]
    built_from = EngineModel(path, plugins(), "")
    answer = find_builder(backend).ask(built_from, "parse", cases=[shapes])
    assert answer["refusal"] is None
    names = [model.graph.node[0].output[0], "same", "squared"]
    assert answer["outputs"] == dict.fromkeys(names, "float16")
    assert answer["plugins"] == ["node_NystraWindowNystrom"]
    assert answer["shapes"] == [[[2, 16, 8, 6]] * 3]


def test_a_file_that_is_no_model(tmp_path: Path, odd: dict[str, Any]) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08\x0ano protobuf")
    with pytest.raises(NystraError, match="cannot read the model"):
        compare_layers(SessionSpec(tmp_path / "m.onnx", "odd", 1), recorded())
