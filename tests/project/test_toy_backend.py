"""Backends say what they are on their class: one module and one row, and everything takes it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

import toy_backend
from nystra.cli.main import main
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.runtime import Session, backends
from nystra.runtime.backends import backend_names, find_backend, register_backend
from nystra.runtime.model.references import ReferenceCase, write_references
from nystra.runtime.timing import bench as bench_module
from runtime_models import nystra_metadata, save_upscaler
from small_swinir import state_of
from toy_backend import HOME, ROW, ToyBackend


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(backends, "_BACKENDS", {**backends._BACKENDS, **ROW})
    monkeypatch.setitem(sys.modules, HOME, toy_backend)
    return save_upscaler(tmp_path / "two.onnx", metadata=nystra_metadata())


def test_it_runs_and_validates(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    source, target = tmp_path / "in.png", tmp_path / "out.png"
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    Image.fromarray(pixels).save(source)
    assert main(["run", str(model), "-i", str(source), "-o", str(target), "--backend", "toy"]) == 0
    with Image.open(target) as picture:
        np.testing.assert_array_equal(picture, pixels.repeat(2, axis=0).repeat(2, axis=1))
    image = pixels.transpose(2, 0, 1)[None]
    expected = (image / np.float32(255)).repeat(2, axis=2).repeat(2, axis=3)
    case = ReferenceCase({"input": image}, {"output": expected.astype(np.float32)})
    write_references(model.with_suffix(".npz"), [case], {})
    capsys.readouterr()
    assert main(["validate", str(model), "--backend", "toy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["library_reason"] == "numpy repeats the pixels"
    case.outputs["output"][0, 0, 0, 0] += 0.5
    write_references(model.with_suffix(".npz"), [case], {})
    assert main(["validate", str(model), "--backend", "toy", "-q"]) == 1


def test_it_is_timed_beside_the_others(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A child process has the row by its own package; here the toy's module brings it along."""
    honest = bench_module.session_configuration

    def configured(path: Any, backend: str, threads: int | None = None) -> Any:
        made = honest(path, backend, threads)
        assert made.request["device"] is False
        return replace(made, worker="toy_backend") if backend == "toy" else made

    monkeypatch.setattr(bench_module, "session_configuration", configured)
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
    arguments = ["--backends", "ort-cpu,toy", "--sizes", "8x8", "--seconds", "0.05", "--runs", "3"]
    assert main(["bench", str(model), *arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["backend"], row["measured"]) for row in rows] == [("ort-cpu", True), ("toy", True)]
    assert rows[1]["note"] == "numpy repeats the pixels"


def test_files_in_another_precision_are_refused(tmp_path: Path, model: Path) -> None:
    half = save_upscaler(
        tmp_path / "half.onnx", metadata=nystra_metadata() | {"nystra.precision": "fp16"}
    )
    with pytest.raises(BackendUnavailableError, match="toy has no arithmetic of that type: use"):
        Session(half, "toy")
    assert Session(half, "ort-cpu").backend == "ort-cpu"


def test_every_backend_says_what_it_is() -> None:
    for name in backend_names():
        kind = find_backend(name)
        assert kind.device in ("cpu", "cuda")
        assert kind.device == ("cpu" if name in ("ort-cpu", "openvino") else "cuda")
        assert kind.engine == (name if name in ("tensorrt", "tensorrt-rtx") else None)
        assert "fp32" in kind.precisions
        assert kind.library_name
        assert kind.bodies == (kind.engine is None)


def test_a_backend_is_handed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(backends, "_HANDED", {})
    path = save_upscaler(tmp_path / "two.onnx", metadata=nystra_metadata())
    with pytest.raises(NystraError, match="unknown backend 'toy'"):
        Session(path, "toy")
    register_backend("toy", ToyBackend)
    assert Session(path, "toy")(np.ones((1, 3, 2, 2), np.float32)).shape == (1, 3, 4, 4)
    assert "toy" not in backend_names()  # which is the table, that auto goes through
    with pytest.raises(NystraError, match="there is a backend 'ort-cpu' already"):
        register_backend("ort-cpu", ToyBackend)


def test_pytorch_is_a_backend_like_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backends, "_HANDED", {})
    checkpoint = tmp_path / "tiny.safetensors"
    save_file(state_of(window_size=8, depths=[1]), checkpoint)
    model = str(tmp_path / "m.onnx")
    one_size = ["--static", "1x3x16x16", "--no-speed"]
    assert main(["export", str(checkpoint), "-o", model, "-q", *one_size]) == 0
    torch = ["validate", model, "--backend", "torch-cpu"]
    capsys.readouterr()
    assert main([*torch, "--checkpoint", str(checkpoint), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["library_reason"].startswith("PyTorch ")
    assert report["max_abs"] == 0.0
    assert main(torch) == 3
    assert "give --checkpoint" in capsys.readouterr().err
