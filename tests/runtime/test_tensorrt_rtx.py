"""Whole engines of TensorRT-RTX, built on a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.plugins.operators import find_schema
from nystra.runtime.compiled.cache import EngineRecord
from nystra.runtime.compiled.model import EngineModel, EngineShapes
from nystra.runtime.engines.build import BuildOptions, build_engine
from tensorrt_tools import OPEN, cases, operator_model, plugins, swinir, use_sdk

TARGETS = ("sm86", "sm89", "sm120")
PINV_SHAPES = EngineShapes("A_0:1x4x4", "A_0:64x16x16", "A_0:256x32x32")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    use_sdk("rtx", monkeypatch)
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_swinir_for_three_architectures() -> None:
    model = EngineModel.open(swinir(), plugins())
    built = build_engine(model, BuildOptions("tensorrt-rtx", targets=TARGETS, tile=64))
    assert built.fresh
    assert built.record.targets == list(TARGETS)
    assert built.record.profile == {"input": ((1, 3, 64, 64),) * 3}
    assert len(built.record.plugins) == 6
    data = built.path.read_bytes()
    assert data.count(b"NystraPinv") >= 6
    assert data.count(b"batch_init") >= 6  # what the plugins serialize
    assert len(data) > 100_000
    again = build_engine(
        model, BuildOptions("tensorrt-rtx", targets=TARGETS, tile=64, rebuild=True)
    )
    assert again.fresh
    assert again.path.read_bytes() == data
    assert again.record == built.record
    cached = build_engine(model, BuildOptions("tensorrt-rtx", targets=TARGETS, tile=64))
    assert not cached.fresh
    assert cached.record == built.record
    assert EngineRecord.read(EngineRecord.path_for(built.path)) == built.record


def test_the_targets_of_a_machine_without_a_gpu_take_swinir(tmp_path: Path) -> None:
    """As typed by a user: no target, and a new folder."""
    folder = tmp_path / "engines"
    words = ["build", str(swinir()), "--backend", "tensorrt-rtx", "--tile", "64"]
    assert main([*words, "--library", str(plugins()), "-o", str(folder)]) == 0
    (engine,) = folder.glob("*.engine")
    record = EngineRecord.read(EngineRecord.path_for(engine))
    assert record.targets == ["sm80", "sm86", "sm89", "sm120", "sm121"]


def test_bodies_name_no_plugin(tmp_path: Path) -> None:
    path = operator_model(tmp_path / "m.onnx", ["NystraPinv"])
    bare, whole = (
        build_engine(
            EngineModel.open(path, library),
            BuildOptions("tensorrt-rtx", PINV_SHAPES, targets=("sm89",)),
        )
        for library in ("none", plugins())
    )
    assert bare.record.plugins == []
    assert whole.record.plugins == ["node_NystraPinv"]
    for text in (b"batch_init", b"revision"):  # what a plugin serializes
        assert text not in bare.path.read_bytes()
        assert text in whole.path.read_bytes()


@pytest.mark.parametrize("operator", OPEN)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_operator_alone(operator: str, dtype: str, tmp_path: Path) -> None:
    model = operator_model(tmp_path / "m.onnx", [operator], dtype)
    sizes = [
        ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in case.items())
        for case in (cases([operator])[1], cases([operator])[0])
    ]
    flags = EngineShapes(sizes[0], sizes[1], sizes[1])
    engine_model = EngineModel.open(model, plugins())
    built = build_engine(engine_model, BuildOptions("tensorrt-rtx", flags, targets=TARGETS))
    plugin = find_schema(operator).plugin
    assert len(built.record.plugins) == (plugin is not None)
    if plugin is not None:
        assert plugin.encode() in built.path.read_bytes()


def test_an_unknown_target(tmp_path: Path) -> None:
    model = EngineModel.open(operator_model(tmp_path / "m.onnx", ["NystraPinv"]), plugins())
    with pytest.raises(NystraError, match=r"configured for sm90 .*\(SM90\) not supported"):
        build_engine(model, BuildOptions("tensorrt-rtx", PINV_SHAPES, targets=("sm90",)))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "build",
        str(swinir()),
        "--backend",
        "tensorrt-rtx",
        "--target",
        "sm86",
        "--tile",
        "32",
    ]
    command += ["--library", str(plugins()), "-o", str(tmp_path), "--json"]
    assert main(command) == 0
    document = json.loads(capsys.readouterr().out)
    engine = tmp_path / "swinir_tensorrt-rtx_sm86.engine"
    assert document["path"] == str(engine)
    assert document["trtexec"] is document["polygraphy"] is None, "they cannot load the plugins"
    assert engine.is_file()
    assert main(["build", str(swinir()), "--backend", "tensorrt-rtx", "--engine", str(engine)]) == 2
    assert "was built elsewhere" in capsys.readouterr().err
    taking = ["build", str(swinir()), "--backend", "tensorrt-rtx", "--engine", str(engine)]
    assert main([*taking, "--library", str(plugins()), "--trust"]) == 0


def test_the_dry_run_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["build", str(swinir()), "--backend", "tensorrt-rtx", "--target", "sm86", "--dry-run"]
    assert main([*command, "--library", str(plugins()), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["accepted"] is True
    assert document["plugins"] == document["nodes"] == 6
    assert "need a GPU" in document["not_shown"]
