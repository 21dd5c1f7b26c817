"""Networks compiled ahead by OpenVINO, in the cache; and its devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance_cases import CASES
from conformance_models import node_model
from nystra.cli.main import main
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.plugins import native
from nystra.runtime import Session
from nystra.runtime.backends import find_backend
from nystra.runtime.backends.openvino.build import CompileOptions, compile_network
from nystra.runtime.compiled import cache
from nystra.runtime.compiled.model import EngineShapes
from runtime_models import save_upscaler

openvino = pytest.importorskip("openvino", reason="nystra[openvino] is not installed")

TILE = ["--backend", "openvino", "--tile", "8"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes that were compiled in this process, in order."""
    kind: Any = find_backend("openvino")
    shapes: list[Any] = []
    plain = kind.compile

    def compile_it(self: Any, given: Any) -> Any:
        shapes.append(given)
        return plain(self, given)

    monkeypatch.setattr(kind, "compile", compile_it)
    return shapes


def test_a_session_loads_the_network_of_its_size(tmp_path: Path, compiled: list[Any]) -> None:
    model = save_upscaler(tmp_path / "m.onnx")
    image = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    expected = Session(model, "openvino", 1)(image)
    assert not (tmp_path / "cache").exists()  # a session leaves nothing behind
    assert main(["build", str(model), *TILE, "-q"]) == 0
    compiled.clear()
    session = Session(model, "openvino", 1)
    np.testing.assert_array_equal(session(image), expected)
    assert compiled == []
    session(image[:, :, :4])
    assert compiled == [{"input": (1, 3, 4, 8)}]


@pytest.mark.skipif(not native.available(), reason="libnystra_cpu.so is not built")
def test_operators_are_in_the_network(tmp_path: Path, compiled: list[Any]) -> None:
    model = tmp_path / "node.onnx"
    model.write_bytes(node_model(CASES[0]).SerializeToString())
    (name,) = (one.name for one in Session(model, "openvino", 1).inputs)
    feeds = {name: np.random.default_rng(0).random((1, 2, 4, 4), np.float32)}
    expected = Session(model, "openvino", 1).run(feeds)
    options = CompileOptions("openvino", EngineShapes(opt_shapes=f"{name}:1x2x4x4"))
    built, reason = compile_network(model, options)
    assert (built.fresh, built.record.flags) == (
        True,
        ["f32", "kernels", "scales, rows and convolutions"],
    )
    assert "libnystra_cpu" in reason
    assert not compile_network(model, options)[0].fresh
    compiled.clear()
    for output, array in Session(model, "openvino", 1).run(feeds).items():
        np.testing.assert_array_equal(array, expected[output])
    assert compiled == []
    Session(model, "openvino", 1, "none").run(feeds)
    assert len(compiled) == 1  # bodies are another network


def test_what_it_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(model: Path, **how: Any) -> str:
        kind: Any = find_backend("openvino")
        opened = Session(model, "openvino", 1, precision=how.pop("precision", None))._backend
        assert isinstance(opened, kind)
        shapes = how.pop("shapes", {"input": (1, 3, 8, 8)})
        found: str = opened.record(shapes).key
        return found

    model = save_upscaler(tmp_path / "m.onnx")
    keys = [
        key(model),
        key(save_upscaler(tmp_path / "other.onnx", gain=2.0)),
        key(model, precision="bf16"),
        key(model, shapes={"input": (1, 3, 8, 4)}),
    ]
    monkeypatch.setattr(openvino, "get_version", lambda: "2000.1")
    keys.append(key(model))
    assert len(set(keys)) == len(keys)
    assert key(model, precision="fp32") == keys[-1]


def test_a_damaged_network_is_compiled_anew(tmp_path: Path, compiled: list[Any]) -> None:
    model = save_upscaler(tmp_path / "m.onnx")
    assert main(["build", str(model), *TILE, "-q"]) == 0
    (engine,) = cache.every()
    path = engine.path
    path.write_bytes(b"x" + path.read_bytes()[1:])
    compiled.clear()
    session = Session(model, "openvino", 1)
    with pytest.warns(UserWarning, match=r"cannot be loaded: .*The model file is compiled instead"):
        session(np.zeros((1, 3, 8, 8), np.float32))
    assert len(compiled) == 1
    assert main(["build", str(model), *TILE, "-q", "--rebuild"]) == 0
    Session(model, "openvino", 1)(np.zeros((1, 3, 8, 8), np.float32))
    assert len(compiled) == 2


def test_it_says_what_it_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_upscaler(tmp_path / "m.onnx")
    command = ["build", str(model), *TILE, "--precision", "bf16", "--json"]
    for fresh in (True, False):
        assert main(command) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["fresh"] is fresh
        assert document["flags"] == ["bf16", "kernels", "scales, rows and convolutions"]
        assert document["version"] == openvino.get_version()
        assert document["device"]["device"] == "CPU"


BAD_COMMANDS = [
    (["--minShapes", "input:1x3x8x8", "--maxShapes", "input:1x3x8x9"], "for one size, got"),
    (["--target", "sm86"], "--target does not apply to openvino, only to tensorrt or tensorrt-rtx"),
    (["--dry-run"], "--dry-run does not apply to openvino"),
    (["-o", "there"], "--output does not apply to openvino"),
    (["--precision", "fp16"], "--precision fp16 does not apply to openvino"),
]


@pytest.mark.parametrize(("more", "message"), BAD_COMMANDS)
def test_bad_commands(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_upscaler(tmp_path / "m.onnx")
    assert main(["build", str(model), "--backend", "openvino", *more]) == 2
    assert message in capsys.readouterr().err


def test_precision_is_for_openvino(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_upscaler(tmp_path / "m.onnx")
    assert main(["build", str(model), "--precision", "bf16"]) == 2
    assert "--precision does not apply to tensorrt, only to openvino" in capsys.readouterr().err


def test_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_upscaler(tmp_path / "m.onnx")
    image = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    expected = Session(model, "openvino", 1)(image)
    for name in ("openvino:CPU", "openvino:AUTO"):
        session = Session(model, name, 1, precision="fp32")
        assert session.backend == name
        np.testing.assert_allclose(session(image), expected, atol=1e-6)
    given = ["run", str(model), "-i", "a.png", "-o", "b.png", "--backend", "openvino:TPU"]
    assert main(given) == 3
    expected = "OpenVINO has no device 'TPU' on this machine: expected CPU or"
    assert expected in capsys.readouterr().err
    with pytest.raises(BackendUnavailableError, match="no device 'TPU' on"):
        compile_network(model, CompileOptions("openvino:TPU"))
    with pytest.raises(NystraError, match="ort-cpu takes no device: got 'ort-cpu:GPU'"):
        Session(model, "ort-cpu:GPU")


def test_other_devices_run_the_bodies(tmp_path: Path) -> None:
    model = tmp_path / "node.onnx"
    model.write_bytes(node_model(CASES[0]).SerializeToString())
    session = Session(model, "openvino:AUTO", 1)
    assert session.library is None
    assert "the device AUTO runs the operators' bodies" in session.library_reason
    feeds = {session.inputs[0].name: np.random.default_rng(0).random((1, 2, 4, 4), np.float32)}
    expected = Session(model, "openvino", 1, "none").run(feeds)
    for output, array in session.run(feeds).items():
        np.testing.assert_allclose(array, expected[output], atol=1e-6)
