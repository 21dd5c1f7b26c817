"""Real TensorRT without a GPU: it accepts the exported files, with the plugins and without."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.plugins.operators import find_schema
from nystra.runtime.checking.dry_run import DryRunReport, dry_run
from nystra.runtime.compiled.model import EngineModel
from nystra.runtime.engines.build import BuildOptions
from nystra.runtime.engines.builder import Refusal, find_builder
from operator_tests import CUDA_OPERATORS
from runtime_models import save_upscaler
from tensorrt_tools import (
    OPEN,
    SDKS,
    cases,
    operator_model,
    output_shapes,
    planted,
    plugins,
    swinir,
    use_sdk,
)
from vit_tools import SMALL, TOLD, tiny_checkpoint

ALL = list(OPEN)
PLUGINS = list(CUDA_OPERATORS)


def _dry_run(model: Path, library: Path | str, backend: str) -> DryRunReport:
    options = BuildOptions(backend, targets=("sm86",) if backend == "tensorrt-rtx" else ())
    return dry_run(EngineModel.open(model, library), options)


def _parse(model: Path, library: Path | None, backend: str, shapes: Any = ()) -> dict[str, Any]:
    return find_builder(backend).ask(EngineModel(model, library, ""), "parse", cases=list(shapes))


@pytest.mark.parametrize("sdk", SDKS)
def test_float32_is_not_rounded_to_tf32(
    sdk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TF32 is TensorRT's default, also in strongly typed networks."""
    backend = use_sdk(sdk, monkeypatch)
    if backend == "tensorrt":
        monkeypatch.setenv("TRT_INTERNAL_OPTIONS", "--cpu_only=1")
    script = f"""
from nystra.runtime.engines.builder import find_builder
from nystra.runtime.engines.worker import configuration, parse_model
found = find_builder({backend!r})
network = parse_model(found, {str(save_upscaler(tmp_path / "m.onnx"))!r})
flag = found.module.BuilderFlag.TF32
configs = network[0].create_builder_config(), configuration(found, network, {{}})
print(*(config.get_flag(flag) for config in configs))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "False"], done.stderr


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("sdk", SDKS)
def test_swinir_with_plugins(sdk: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = use_sdk(sdk, monkeypatch)
    verdict = _dry_run(swinir(precision), plugins(), backend)
    assert verdict.accepted, verdict.refusal
    assert (verdict.nodes, verdict.plugins) == (6, 6)
    assert len(verdict.shapes) == 5
    for case in verdict.shapes:
        height, width = case.inputs["input"][2:]
        assert case.engine == case.onnxruntime == [[1, 3, 2 * height, 2 * width]]
    last = {
        "10": "profile and plugin formats",
        "11": "output shapes against onnxruntime",
        "rtx": "a whole engine for sm86",
    }
    assert verdict.checked[-1] == last[sdk]
    assert bool(verdict.notes) == (sdk == "11")


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("sdk", ["10", "11"])
def test_swinir_with_bodies(sdk: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = use_sdk(sdk, monkeypatch)
    verdict = _dry_run(swinir(precision), "none", backend)
    assert verdict.accepted, verdict.refusal
    assert (verdict.nodes, verdict.plugins) == (6, 0)
    assert verdict.layers > 3000
    assert len(verdict.shapes) == 5
    for case in verdict.shapes:
        assert case.engine == case.onnxruntime


@pytest.mark.parametrize("target", [None, "tensorrt"])
@pytest.mark.parametrize("sdk", SDKS)
def test_swinir_in_bfloat16(sdk: str, target: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with convolutions in a type that ONNX allows from opset 22 on."""
    backend = use_sdk(sdk, monkeypatch)
    verdict = _dry_run(swinir("bf16", target), plugins(), backend)
    assert verdict.accepted, verdict.refusal
    assert (verdict.nodes, verdict.plugins) == (6, 6)
    assert not verdict.shapes  # onnxruntime's CPU has no bfloat16 to compare with
    assert any("no arithmetic of that type" in text for text in verdict.notes)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("sdk", SDKS)
def test_every_operator_with_a_kernel_is_a_plugin(
    sdk: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = use_sdk(sdk, monkeypatch)
    model = operator_model(tmp_path / "all.onnx", PLUGINS, dtype)
    answer = _parse(model, plugins(), backend, cases(PLUGINS))
    assert answer["refusal"] is None
    assert answer["plugins"] == [f"node_{name}" for name in PLUGINS]
    types = dict(answer["outputs"])
    assert types.pop(f"index_{PLUGINS.index('NystraPatchMatch')}") == "int32"
    assert set(types.values()) == {dtype}
    assert answer["shapes"] == output_shapes(PLUGINS)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("sdk", SDKS)
def test_bodies_hold_the_plugins(
    sdk: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every operator in one file: both Nystrom forms hold the pseudoinverse."""
    backend = use_sdk(sdk, monkeypatch)
    model = operator_model(tmp_path / "all.onnx", ALL, dtype)
    answer = _parse(model, plugins(), backend, cases(ALL))
    assert answer["refusal"] is None
    assert len(answer["plugins"]) == sum(find_schema(name).plugin is not None for name in ALL)
    assert answer["shapes"] == output_shapes(ALL)
    bad = operator_model(tmp_path / "bad.onnx", ["NystraWindowNystrom"], dtype, iterations=9)
    refusal: Refusal = _parse(bad, plugins(), backend)["refusal"]
    assert "attribute iterations is 9; expected 1 to 8" in refusal.reason


@pytest.mark.parametrize("library", ["plugins", "none"])
@pytest.mark.parametrize("sdk", SDKS)
def test_weights_in_a_file_beside_the_model_are_read(
    sdk: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second factor of a product is in a data file in a folder; its size is the output's."""
    backend = use_sdk(sdk, monkeypatch)
    path = operator_model(tmp_path / "m.onnx", ["NystraPinv"])
    model = onnx.load(str(path))
    weights = onnx.TensorProto(name="weights", data_type=TensorProto.FLOAT, dims=[1, 1, 1])
    weights.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "data/m.bin"), ("offset", "4"), ("length", "4")):
        weights.external_data.add(key=key, value=value)
    model.graph.initializer.append(weights)
    model.graph.node.append(helper.make_node("Mul", ["Z_0", "weights"], ["product"], name="mul"))
    model.graph.output[0].name = "product"
    path.write_bytes(model.SerializeToString())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "m.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
    chosen = plugins() if library == "plugins" else None
    answer = _parse(path, chosen, backend, cases(["NystraPinv"]))
    assert answer["refusal"] is None
    assert answer["plugins"] == (["node_NystraPinv"] if chosen else [])
    assert answer["shapes"] == output_shapes(["NystraPinv"])


@pytest.mark.parametrize("sdk", SDKS)
def test_every_body_is_taken(sdk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = use_sdk(sdk, monkeypatch)
    model = operator_model(tmp_path / "all.onnx", ALL)
    answer = _parse(model, None, backend, cases(ALL))
    assert answer["refusal"] is None
    assert answer["plugins"] == []
    assert answer["shapes"] == output_shapes(ALL)


REFUSED_NODES: list[tuple[dict[str, Any], dict[str, tuple[int, ...]], str]] = [
    ({"iterations": 9}, {}, "attribute iterations is 9; expected 1 to 8"),
    ({"revision": 2}, {}, "the node has revision 2"),
    ({"iterations": "six"}, {}, "attribute iterations is not a single INT"),
    ({}, {"A_0": (2, 6, 5)}, "input A is (2, 6, 5); expected square matrices"),
]


@pytest.mark.parametrize(("changes", "shapes", "words"), REFUSED_NODES)
@pytest.mark.parametrize("sdk", SDKS)
def test_bad_nodes_are_refused(
    sdk: str,
    changes: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = use_sdk(sdk, monkeypatch)
    path = tmp_path / "bad.onnx"
    model = operator_model(path, ["NystraPinv"], bodies=False, shapes=shapes, **changes)
    refusal: Refusal = _parse(model, plugins(), backend)["refusal"]
    assert refusal.node == "node_NystraPinv"
    assert words in refusal.reason


@pytest.mark.parametrize("sdk", SDKS)
def test_an_unknown_operator_is_refused(
    sdk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = use_sdk(sdk, monkeypatch)
    path = operator_model(tmp_path / "m.onnx", ["NystraPinv"], bodies=False)
    model = onnx.load(str(path))
    model.graph.node[0].op_type = "NystraOther"
    onnx.save(model, str(path))
    refusal: Refusal = _parse(path, plugins(), backend)["refusal"]
    assert refusal.node == "node_NystraPinv"
    assert "NystraOther" in refusal.reason


NODE = "NystraWindowNystrom_NystraPinv_"
"""How the name of the node in the body begins."""

FAULTS: dict[str, tuple[str | None, str]] = {
    "capability": (NODE, "buildCapability"),
    "clone": ("", "SIG"),
    "format": (NODE, "format"),
    "name": (NODE, "NystraPinv"),
    "namespace": (NODE, "NystraPinv"),
    "null": (NODE, "Could not create the plugin"),
    "outputs": (NODE, "getOutputDataTypes"),
    "shape": (None, "reshape changes volume"),
    "shape_error": (NODE, "output shape computation failed"),
    "type": (None, "implicitlyConvertibleTypes"),
}
"""What is planted -> how the node is named (None: a later one), and words of the verdict."""


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = use_sdk("10", monkeypatch)
    verdict = _dry_run(swinir(), planted(fault, monkeypatch), backend)
    assert not verdict.accepted
    assert verdict.refusal is not None
    node, words = FAULTS[fault]
    assert words in str(verdict.refusal)
    if node is None:
        assert verdict.refusal.node
        assert not verdict.refusal.node.startswith(NODE)
    else:
        assert verdict.refusal.node.startswith(node)


@pytest.mark.parametrize("sdk", ["10", "11"])
def test_a_consistent_wrong_shape_is_caught_by_comparison(
    sdk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = use_sdk(sdk, monkeypatch)
    model = operator_model(tmp_path / "all.onnx", PLUGINS)
    answer = _parse(model, planted("shape", monkeypatch), backend, cases(PLUGINS))
    assert answer["refusal"] is None
    assert answer["shapes"] != output_shapes(PLUGINS)


def test_the_faulty_library_without_a_fault_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = use_sdk("10", monkeypatch)
    assert _dry_run(swinir(), planted("none", monkeypatch), backend).accepted


@pytest.mark.parametrize("fault", ["configure", "format"])
def test_faults_that_a_whole_build_catches(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = use_sdk("rtx", monkeypatch)
    verdict = _dry_run(swinir(), planted(fault, monkeypatch), backend)
    assert not verdict.accepted
    assert fault in str(verdict.refusal).lower()


TRAINED: dict[str, dict[str, Any]] = {
    "full": {},
    "linformer": {"linformer_k": 4},
    "performer": {"rp_dim": 8},
    "nystromformer": {"num_landmarks": 5, "conv_kernel_size": 3},
}
"""What a network is built with; none of them needs a plugin but Nyströmformer's pseudoinverse."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Path]:
    """Files of a small vision transformer, by its attention; each is exported once."""

    @functools.cache
    def export(attention: str, trained: bool) -> Path:
        hyper = TRAINED[attention] | {"attention": attention} if trained else {}
        told = {key: hyper[key] for key in hyper if key == "num_landmarks"}
        own = mechanism("as_trained") if trained else mechanism(attention, **SMALL[attention])
        checkpoint = tiny_checkpoint(tmp_path_factory.mktemp(attention), **hyper)
        options = ExportOptions(Plan(own), TOLD | told, speed=False)
        return export_model(checkpoint, checkpoint.with_suffix(".onnx"), options).model

    return export


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize(
    ("attention", "trained"),
    [
        pytest.param(name, of is TRAINED, marks=() if name == quick else pytest.mark.release)
        for of, quick in ((TRAINED, "nystromformer"), (SMALL, "psal"))
        for name in of
    ],
)
def test_vision_transformers_are_taken(
    attention: str,
    trained: bool,
    sdk: str,
    exported: Callable[[str, bool], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the attention that they were trained with, or another in its place."""
    backend = use_sdk(sdk, monkeypatch)
    verdict = _dry_run(exported(attention, trained), plugins(), backend)
    assert verdict.accepted, verdict.refusal
    assert verdict.plugins >= verdict.nodes
    batches = {case.inputs["input"][0] for case in verdict.shapes}
    assert len(batches) > 1
    for case in verdict.shapes:
        assert case.engine == case.onnxruntime == [[case.inputs["input"][0], 5]]
