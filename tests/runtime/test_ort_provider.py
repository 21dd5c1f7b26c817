"""The backend ``ort:NAME``: any execution provider of onnxruntime, and its nodes.

The plug-in of these tests (``provider.cc``) is a real one: it takes every Relu, and computes it
rightly under one name and wrongly under another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from exported_files import swinir_files
from nystra.cli.main import main
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.runtime import Session, SessionSpec
from nystra.runtime.backends import backend_class, base
from nystra.runtime.backends import ort as backend
from nystra.runtime.model.references import ReferenceCase, write_references
from provider_tools import RIGHT, WRONG, build_plugin, require_webgpu, save_relu
from runtime_models import nystra_metadata, save_operator, save_upscaler

SHARE = f"{RIGHT} computes 1 of 2 nodes; CPUExecutionProvider computes 1 Neg"
WEBGPU = "ort:WebGpuExecutionProvider"


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plug-in; a process keeps it, since sessions may still use it."""
    return build_plugin(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(autouse=True)
def quiet_again() -> Iterator[None]:
    """Settings that the backend changed for the process are restored."""
    yield
    ort.set_default_logger_severity(2)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_relu(tmp_path / "model.onnx")


def make_image() -> np.ndarray:
    return np.random.default_rng(0).random((1, 3, 4, 5), dtype=np.float32)


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Run a command; return its exit code and everything that it prints."""
    code = main([str(argument) for argument in arguments])
    return code, "".join(capsys.readouterr())


def where(name: str, plugin: Path) -> tuple[object, ...]:
    return ("--backend", f"ort:{name}", "--ep-library", plugin)


def test_a_plug_in_by_its_path(model: Path, plugin: Path) -> None:
    session = Session(model, f"ort:{RIGHT}", ep_library=plugin, options={"key": 1})
    np.testing.assert_array_equal(session(-make_image()), make_image())
    assert session.assignment is not None
    assert session.assignment.describe() == SHARE
    assert session.assignment.as_dict()["nodes"] == {
        RIGHT: {"Relu": 1},
        "CPUExecutionProvider": {"Neg": 1},
    }
    Session(model, f"ort:{WRONG}", ep_library=plugin)  # of the same library, which is loaded once


def test_a_wrong_provider_is_found_out(
    model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline = ("--baseline", model.with_name("baseline.json"))
    right, wrong = where(RIGHT, plugin), where(WRONG, plugin)
    assert command(capsys, "validate", model, *right)[0] == 0
    assert command(capsys, "check", model, *right, *baseline, "--update")[0] == 0
    assert command(capsys, "check", model, *right, *baseline)[0] == 0
    code, said = command(capsys, "validate", model, *wrong)
    assert code == 1
    assert "the largest difference is 0.00" in said
    assert command(capsys, "check", model, *wrong, *baseline)[0] == 1
    code, said = command(capsys, "validate", model, *wrong, "--layerwise")
    assert code == 1
    assert "Relu" in said


IN_A_PROCESS = """
import sys
from nystra.core.errors import BackendUnavailableError
from nystra.runtime import Session
from nystra.runtime.backends import ort as _providers

print(*_providers.available_providers())
print(Session(sys.argv[1], "ort:WrongExecutionProvider").assignment.describe())
try:
    Session(sys.argv[1], "ort:NoneExecutionProvider")
except BackendUnavailableError as error:
    print(error)
"""


def test_a_plug_in_of_a_package(model: Path, plugin: Path, tmp_path: Path) -> None:
    """In a process that loaded no plug-in yet."""
    package = tmp_path / "onnxruntime_ep_paper"
    package.mkdir()
    (package / "__init__.py").write_text(
        f"def get_library_path():\n    return {str(plugin)!r}\n"
        f"def get_ep_names():\n    return [{RIGHT!r}, {WRONG!r}, 'NoneExecutionProvider']\n"
    )
    (tmp_path / "onnxruntime_ep_broken.py").write_text("raise RuntimeError('no driver')")
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, str(model)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=True,
    )
    names, taken, refused = done.stdout.splitlines()
    assert {RIGHT, WRONG} <= {*names.split()}
    assert taken.startswith(f"{WRONG} computes 1 of 2 nodes")
    assert "NoneExecutionProvider is installed but offers onnxruntime" in refused


def test_a_device_of_several(model: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in has one device; the choice among several is tested by names alone."""
    kinds = [SimpleNamespace(device=SimpleNamespace(type=SimpleNamespace(name="NPU")))]
    real = backend.find_devices(RIGHT, plugin)
    monkeypatch.setattr(backend, "find_devices", lambda *_: [*kinds, *real])
    session = Session(model, f"ort:{RIGHT}", ep_library=plugin, options={"hardware": "cpu"})
    assert session.assignment is not None
    with pytest.raises(
        BackendUnavailableError, match="has no gpu on this machine: expected cpu or npu"
    ):
        Session(model, f"ort:{RIGHT}", ep_library=plugin, options={"hardware": "gpu"})


def test_fallback_is_an_error_where_it_is_to_be(
    model: Path, plugin: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = where(RIGHT, plugin)
    code, said = command(capsys, "validate", model, *given, "--backend-option", "fallback=error")
    assert code == 2
    assert f"{SHARE}, and the option fallback is error" in said
    options = {"fallback": "error"}
    assert Session(model, "ort:CPUExecutionProvider", options=options).assignment is not None
    # An onnxruntime before 1.24 keeps no record; it refuses such a session by itself.
    sessions = ort.InferenceSession.__mro__[1]
    monkeypatch.delattr(sessions, "get_provider_graph_assignment_info")
    with pytest.raises(NystraError, match=r"cannot load .*fallback to CPU EP has been .*disabled"):
        Session(model, f"ort:{RIGHT}", ep_library=plugin, options=options)
    assert Session(model, f"ort:{RIGHT}", ep_library=plugin).assignment is None


@pytest.mark.parametrize("place", ["graph", "branch", "function"])
def test_a_file_with_an_engine_is_refused(model: Path, place: str) -> None:
    """An engine is native code, and a provider would run it."""
    document = onnx.load(model)
    engine = onnx.helper.make_node(
        "EPContext", ["negated"], ["output"], domain="com.microsoft", embed_mode=1
    )
    engine.name = "\x1b[2J"
    if place == "graph":
        document.graph.node[1].CopyFrom(engine)
    elif place == "function":
        function = onnx.helper.make_function("own", "F", ["negated"], ["output"], [engine], [])
        document.functions.append(function)
    else:
        branch = onnx.helper.make_graph([engine], "branch", [], [])
        node = onnx.helper.make_node("If", ["c"], ["d"], then_branch=branch, else_branch=branch)
        document.graph.node.append(node)
    onnx.save(document, model)
    with pytest.raises(NystraError, match=r"an engine that a provider compiled \(EPContext\)"):
        Session(model, "ort:CPUExecutionProvider")


def test_what_is_refused(model: Path, plugin: Path, tmp_path: Path) -> None:
    text = "no execution provider 'Some' on this machine: .*CPUExecutionProvider.*`ep_library`"
    with pytest.raises(BackendUnavailableError, match=text) as caught:
        Session(model, "ort:Some")
    assert caught.value.exit_code == 3
    with pytest.raises(
        BackendUnavailableError, match=r"needs the name of an execution provider: expected"
    ):
        Session(model, "ort")
    with pytest.raises(
        BackendUnavailableError, match=f"'Some' on this machine and {plugin} does not contain it"
    ):
        Session(model, "ort:Some", ep_library=plugin)
    with pytest.raises(NystraError, match="no file at"):
        Session(model, f"ort:{RIGHT}", ep_library=tmp_path / "none.so")
    with pytest.raises(NystraError, match=r"cannot load .*model.onnx as a plug-in"):
        Session(model, f"ort:{RIGHT}", ep_library=model)
    with pytest.raises(NystraError, match=r"`ep_library` is a plug-in .* not apply to ort-cpu"):
        Session(model, "ort-cpu", ep_library=plugin)
    with pytest.raises(NystraError, match="`fallback` is 'no', expected cpu or error"):
        Session(model, f"ort:{RIGHT}", ep_library=plugin, options={"fallback": "no"})


def test_a_provider_that_fails_says_why(
    model: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ort.capi.onnxruntime_pybind11_state.EPFail(
            "[ONNXRuntimeError] : 11 : EP_FAIL : /a/b.cc:1 status was false. No adapter."
        )

    monkeypatch.setattr(ort, "InferenceSession", fail)
    with pytest.raises(BackendUnavailableError, match=f"by {RIGHT}: No adapter$"):
        Session(model, f"ort:{RIGHT}", ep_library=plugin)


def test_operators_are_bodies_there(plugin: Path, tmp_path: Path) -> None:
    path = save_operator(tmp_path / "o.onnx", body=True)
    session = Session(path, f"ort:{RIGHT}", ep_library=plugin)
    assert (session.library, session.operators) == (None, "bodies")
    assert f"{RIGHT} runs the operators' bodies" in session.library_reason
    np.testing.assert_array_equal(session(make_image()), 2 * make_image())
    with pytest.raises(BackendUnavailableError, match=r"without ONNX bodies.*libnystra_onnxrun"):
        Session(save_operator(tmp_path / "b.onnx", body=False), f"ort:{RIGHT}", ep_library=plugin)


@pytest.mark.full
def test_commands_say_what_fell_back(
    model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = where(RIGHT, plugin)
    assert f"provider: {SHARE}" in command(capsys, "inspect", model, *given)[1]
    assert f"note: {SHARE}" in command(capsys, "validate", model, *given)[1]
    for name in ("inspect", "validate"):
        said = json.loads(command(capsys, name, model, *given, "--json", "-q")[1])
        assert said["assignment"]["taken"] == 1
    which = f"ort-cpu,ort:{RIGHT},ort:Some"
    short = ("--sizes", "8x8", "--runs", 3, "--ep-library", plugin, "--json")
    code, said = command(capsys, "bench", model, "--backends", which, *short)
    rows = {row["backend"]: row for row in json.loads(said)["rows"]}
    assert code == 0
    assert rows[f"ort:{RIGHT}"]["assignment"]["taken"] == 1
    assert SHARE in rows[f"ort:{RIGHT}"]["note"]
    assert rows["ort-cpu"]["assignment"] is None
    assert "not available: onnxruntime" in rows["ort:Some"]["reason"]


def test_the_gate_asks_a_provider_for_no_kernels(
    plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A baseline that was accepted with the operator library holds for a provider too."""
    path = save_operator(tmp_path / "o.onnx", body=True)
    case = ReferenceCase({"input": make_image()}, {"output": 2 * make_image()})
    write_references(tmp_path / "o.npz", [case], {"tolerances": [1e-5]})
    baseline = tmp_path / "baseline.json"
    command(capsys, "check", path, "--baseline", baseline, "--update", "--backend", "ort-cpu")
    document = json.loads(baseline.read_text())
    document["items"]["kernels"] = {"accepted": 1.0, "tolerance": 0.0}
    baseline.write_text(json.dumps(document))
    given = (*where(RIGHT, plugin), "--baseline", baseline, "--json", "-q")
    code, said = command(capsys, "check", path, *given)
    states = {item["item"]: item["state"] for item in json.loads(said)["items"]}
    assert (code, states["kernels"], states["max_abs"]) == (0, "skipped", "passed")


def test_a_long_list_of_operators_is_cut() -> None:
    nodes = {"Other": {f"Op{n}": 20 - n for n in range(10)}, "Mine": {"Conv": 3}}
    sentence = base.Assignment("Mine", nodes).describe()
    assert sentence.startswith("Mine computes 3 of 158 nodes; Other computes 20 Op0, 19 Op1")
    assert sentence.endswith("13 Op7, 23 of other operators")


def test_a_spec_carries_it(model: Path, plugin: Path) -> None:
    spec = SessionSpec(model, f"ort:{RIGHT}", options={"fallback": "cpu"}, ep_library=plugin)
    assert (spec.backend, spec.device, spec.backend_name) == ("ort", RIGHT, f"ort:{RIGHT}")
    copy = SessionSpec.from_dict(json.loads(json.dumps(spec.as_dict())))
    assert copy == spec
    assert Session.open(copy).spec == spec
    relative = replace(spec, ep_library=Path("lib.so")).as_dict()
    assert relative["ep_library"] == str(Path.cwd() / "lib.so")


def test_a_provider_that_is_built_in(model: Path) -> None:
    session = Session(model, "ort:CPUExecutionProvider")
    assert session.assignment is not None
    assert session.assignment.describe() == "CPUExecutionProvider computes 2 of 2 nodes"
    if "AzureExecutionProvider" in ort.get_available_providers():  # which takes no plain nodes
        session = Session(model, "ort:AzureExecutionProvider")
        assert session.assignment is not None
        assert session.assignment.describe() == (
            "AzureExecutionProvider computes 0 of 2 nodes; CPUExecutionProvider computes 1 Neg, "
            "1 Relu"
        )


def test_auto_takes_no_provider() -> None:
    assert backend_class("auto")[0] == "ort-cpu"
    assert not backend_class("ort:CPUExecutionProvider")[1].automatic


@pytest.mark.full
def test_webgpu_in_software(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require_webgpu(monkeypatch)
    model = save_relu(tmp_path / "model.onnx")
    session = Session(model, WEBGPU, options={"fallback": "error"})
    assert session.assignment is not None
    assert session.assignment.taken == session.assignment.total == 2
    assert command(capsys, "validate", model, "--backend", WEBGPU)[0] == 0
    other = save_upscaler(model, metadata=nystra_metadata())
    assert command(capsys, "validate", other, "--backend", WEBGPU)[0] != 0


@pytest.mark.release
def test_webgpu_computes_an_export_in_software(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    require_webgpu(monkeypatch)
    model = swinir_files(tmp_path_factory) / "model.onnx"
    code, said = command(capsys, "validate", model, "--backend", WEBGPU, "--json", "-q")
    report = json.loads(said)
    assert code == 0
    assert report["max_abs"] < 1e-5
    assert report["assignment"]["taken"] > 400


def test_openvino_says_what_it_lacks(model: Path) -> None:
    """It opens the file if it has a device, otherwise it says that it has none."""
    pytest.importorskip(
        "onnxruntime_ep_openvino", reason="pip install --no-deps onnxruntime-ep-openvino"
    )
    try:
        session = Session(model, "ort:OpenVINOExecutionProvider")
    except BackendUnavailableError as error:
        assert "offers onnxruntime" in str(error)  # noqa: PT017
        pytest.skip(f"no device: {error}")
    np.testing.assert_array_equal(session(-make_image()), make_image())
