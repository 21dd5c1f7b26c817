"""The backend ``ort:NAME``: any execution provider of onnxruntime, and what it takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from nystra.cli.main import main
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.runtime import Session, SessionSpec
from nystra.runtime.backends import _providers, backend_class
from nystra.runtime.model.references import ReferenceCase, write_references
from provider_tools import PROVIDER, FakeOnnxruntime, require_webgpu
from runtime_models import nystra_metadata, save_operator, save_upscaler

NAME = f"ort:{PROVIDER}"


@pytest.fixture(autouse=True)
def quiet_again() -> Iterator[None]:
    """What the backend sets for the process goes back."""
    yield
    ort.set_default_logger_severity(2)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeOnnxruntime:
    """An onnxruntime whose plug-in has not been loaded."""
    module = FakeOnnxruntime()
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    monkeypatch.setattr(_providers, "_LOADED", set())
    return module


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "libpaper.so"
    path.write_bytes(b"a plug-in")
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return an upscaler by 2 of two nodes, with references made by numpy."""
    path = save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata())
    picture = np.random.default_rng(1).random((1, 3, 6, 5)).astype(np.float32)
    case = ReferenceCase({"input": picture}, {"output": picture.repeat(2, 2).repeat(2, 3)})
    write_references(tmp_path / "model.npz", [case], {"tolerances": [1e-5]})
    return path


def picture() -> np.ndarray:
    return np.random.default_rng(0).random((1, 3, 4, 5), dtype=np.float32)


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Run a command; return its exit code and all that it prints."""
    code = main([str(argument) for argument in arguments])
    return code, "".join(capsys.readouterr())


def test_a_plug_in_by_its_path(fake: FakeOnnxruntime, model: Path, plugin: Path) -> None:
    fake.takes = {"Resize"}
    session = Session(model, NAME, ep_library=plugin, options={"cache": "off"})
    assert (session.backend, fake.loaded) == (NAME, [str(plugin)])
    assert fake.chosen[0][0].ep_name == PROVIDER
    assert fake.chosen[1] == {"cache": "off"}  # what is not ours is the provider's
    np.testing.assert_allclose(session(picture()), picture().repeat(2, 2).repeat(2, 3))
    assert session.assignment is not None
    assert session.assignment.sentence() == (
        f"{PROVIDER} computes 1 of 2 nodes; CPUExecutionProvider computes 1 Mul"
    )
    assert session.assignment.as_dict()["nodes"] == {
        PROVIDER: {"Resize": 1},
        "CPUExecutionProvider": {"Mul": 1},
    }
    Session(model, NAME, ep_library=plugin)
    assert len(fake.loaded) == 1  # once a process


def test_a_plug_in_of_a_package(
    fake: FakeOnnxruntime,
    model: Path,
    plugin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / "onnxruntime_ep_paper"
    package.mkdir()
    (package / "__init__.py").write_text(
        f"def get_library_path():\n    return {str(plugin)!r}\n"
        f"def get_ep_names():\n    return [{PROVIDER!r}]\n"
    )
    (tmp_path / "onnxruntime_ep_broken.py").write_text("raise RuntimeError('no driver')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("onnxruntime_ep_paper", "onnxruntime_ep_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert PROVIDER in _providers.available_providers()
    assert Session(model, NAME).backend == NAME
    assert fake.loaded == [str(plugin)]
    fake.hardware = []
    with pytest.raises(BackendUnavailableError, match=r"is installed, and offers .* no device"):
        Session(model, NAME)


def test_a_device_of_several(fake: FakeOnnxruntime, model: Path, plugin: Path) -> None:
    fake.hardware = ["CPU", "NPU"]
    kinds = []
    for options in ({}, {"hardware": "npu"}):
        Session(model, NAME, ep_library=plugin, options=options)
        kinds.append(fake.chosen[0][0].device.type.name)
    assert kinds == ["CPU", "NPU"]
    with pytest.raises(BackendUnavailableError, match="has no gpu here: expected cpu or npu"):
        Session(model, NAME, ep_library=plugin, options={"hardware": "gpu"})


def test_fallback_is_an_error_where_it_is_to_be(
    fake: FakeOnnxruntime, model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = {"fallback": "error"}
    assert Session(model, NAME, ep_library=plugin, options=strict).assignment is not None
    fake.takes = {"Resize"}
    with pytest.raises(NystraError, match="1 of 2 nodes; CPUExecutionProvider computes 1 Mul, and"):
        Session(model, NAME, ep_library=plugin, options=strict)
    where = ("--backend", NAME, "--ep-library", plugin, "--backend-option", "fallback=error")
    code, said = command(capsys, "validate", model, *where)
    assert (code, "nothing is to fall back" in said) == (2, True)
    fake.tells = False
    assert Session(model, NAME, ep_library=plugin).assignment is None


def test_what_is_refused(fake: FakeOnnxruntime, model: Path, plugin: Path, tmp_path: Path) -> None:
    text = f"no execution provider '{PROVIDER}' here: there are .*CPUExecutionProvider.*ep_library"
    with pytest.raises(BackendUnavailableError, match=text):
        Session(model, NAME)
    with pytest.raises(BackendUnavailableError, match=r"names an execution provider.*: expected"):
        Session(model, "ort")
    with pytest.raises(BackendUnavailableError, match=f"'Other' here and {plugin} brings none"):
        Session(model, "ort:Other", ep_library=plugin)
    with pytest.raises(NystraError, match="there is no plug-in of onnxruntime at"):
        Session(model, NAME, ep_library=tmp_path / "none.so")
    with pytest.raises(NystraError, match=r"cannot load .* as a plug-in: invalid ELF header"):
        Session(model, NAME, ep_library=model)
    with pytest.raises(NystraError, match=r"`ep_library` is a plug-in .* not apply to ort-cpu"):
        Session(model, "ort-cpu", ep_library=plugin)
    with pytest.raises(NystraError, match="`fallback` is 'no', expected cpu or error"):
        Session(model, NAME, ep_library=plugin, options={"fallback": "no"})
    fake.failure = ort.capi.onnxruntime_pybind11_state.EPFail(
        "[ONNXRuntimeError] : 11 : EP_FAIL : /a/b.cc:1 status was false. No adapter."
    )
    with pytest.raises(BackendUnavailableError, match=f"by {PROVIDER}: No adapter$"):
        Session(model, NAME, ep_library=plugin)


def test_operators_are_bodies_there(fake: FakeOnnxruntime, plugin: Path, tmp_path: Path) -> None:
    session = Session(save_operator(tmp_path / "o.onnx", body=True), NAME, ep_library=plugin)
    assert (session.library, session.operators) == (None, "bodies")
    assert f"{PROVIDER} runs the operators' bodies" in session.library_reason
    np.testing.assert_array_equal(session(picture()), 2 * picture())
    with pytest.raises(BackendUnavailableError, match="operators without ONNX bodies"):
        Session(save_operator(tmp_path / "b.onnx", body=False), NAME, ep_library=plugin)


def test_a_wrong_provider_is_found_out(
    fake: FakeOnnxruntime, model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--backend", NAME, "--ep-library", plugin)
    baseline = model.with_name("baseline.json")
    assert command(capsys, "validate", model, *where)[0] == 0
    assert command(capsys, "check", model, *where, "--baseline", baseline, "--update")[0] == 0
    assert command(capsys, "check", model, *where, "--baseline", baseline)[0] == 0
    fake.wrong = {"Mul"}
    code, said = command(capsys, "validate", model, *where)
    assert code == 1
    assert "the largest difference is 1, allowed is 1e-05" in said
    assert command(capsys, "check", model, *where, "--baseline", baseline)[0] == 1
    assert command(capsys, "validate", model, "--backend", "ort-cpu")[0] == 0


def test_commands_say_what_fell_back(
    fake: FakeOnnxruntime, model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.takes = {"Resize"}
    where = ("--backend", NAME, "--ep-library", plugin)
    share = f"{PROVIDER} computes 1 of 2 nodes; CPUExecutionProvider computes 1 Mul"
    assert f"provider: {share}" in command(capsys, "inspect", model, *where)[1]
    assert f"note: {share}" in command(capsys, "validate", model, *where)[1]
    for name in ("inspect", "validate"):
        said = json.loads(command(capsys, name, model, *where, "--json", "-q")[1])
        assert said["assignment"]["taken"] == 1


def test_a_spec_carries_it(fake: FakeOnnxruntime, model: Path, plugin: Path) -> None:
    spec = SessionSpec(model, NAME, options={"fallback": "error"}, ep_library=plugin)
    assert (spec.backend, spec.device, spec.backend_name) == ("ort", PROVIDER, NAME)
    copy = SessionSpec.from_dict(json.loads(json.dumps(spec.as_dict())))
    assert copy == spec
    assert Session.open(copy).spec == spec
    relative = replace(spec, ep_library=Path("lib.so")).as_dict()
    assert relative["ep_library"] == str(Path.cwd() / "lib.so")


def test_a_provider_that_is_built_in(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(model, "ort:CPUExecutionProvider", options={"fallback": "error"})
    assert session.assignment is not None
    assert session.assignment.sentence() == "CPUExecutionProvider computes 2 of 2 nodes"
    if "AzureExecutionProvider" in ort.get_available_providers():  # which takes no plain nodes
        session = Session(model, "ort:AzureExecutionProvider")
        assert session.assignment is not None
        assert session.assignment.sentence() == (
            "AzureExecutionProvider computes 0 of 2 nodes; CPUExecutionProvider computes 1 Mul, "
            "1 Resize"
        )
    which = "ort-cpu,ort:CPUExecutionProvider"
    code, said = command(
        capsys, "bench", model, "--backends", which, "--sizes", "8x8", "--runs", 3, "--json"
    )
    rows = {row["backend"]: row for row in json.loads(said)["rows"]}
    assert code == 0
    assert rows["ort:CPUExecutionProvider"]["assignment"]["taken"] == 2
    assert rows["ort-cpu"]["assignment"] is None


def test_auto_takes_no_provider() -> None:
    assert backend_class("auto")[0] == "ort-cpu"
    assert not backend_class("ort:CPUExecutionProvider")[1].automatic


@pytest.mark.full
def test_webgpu_in_software(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require_webgpu(monkeypatch)
    session = Session(model, "ort:WebGpuExecutionProvider", options={"fallback": "error"})
    assert session.assignment is not None
    assert session.assignment.taken == session.assignment.total == 2
    np.testing.assert_allclose(session(picture()), picture().repeat(2, 2).repeat(2, 3), atol=1e-6)
    where = ("--backend", "ort:WebGpuExecutionProvider")
    assert command(capsys, "validate", model, *where)[0] == 0
    save_upscaler(model, metadata=nystra_metadata(), gain=1.01)
    assert command(capsys, "validate", model, *where)[0] == 1
