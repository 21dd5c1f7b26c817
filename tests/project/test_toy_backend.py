"""A backend is added with one module and one row, and every command accepts it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from nystra.cli.main import main
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.runtime import RunOptions, Session, SessionSpec, backends, run_images
from nystra.runtime.backends import backend_names, find_backend, register_backend
from nystra.runtime.model.references import ReferenceCase, write_references
from nystra.runtime.tasks.restoration.restorer import memory_meter
from nystra.runtime.timing import bench as bench_module
from runtime_models import nystra_metadata, save_upscaler
from small_swinir import state_of
from toy_backend import HOME, ROW, save_program, toy_module


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program, and the backend in the table of this process."""
    monkeypatch.setattr(backends, "_BACKENDS", {**backends._BACKENDS, **ROW})
    monkeypatch.delitem(sys.modules, HOME, raising=False)
    monkeypatch.setitem(sys.modules, HOME, toy_module())
    return save_program(tmp_path / "two.toy", nystra_metadata())


def test_it_runs_and_validates(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The artifact determines the backend: no command names it."""
    source, target = tmp_path / "in.png", tmp_path / "out.png"
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    Image.fromarray(pixels).save(source)
    assert main(["run", str(model), "-i", str(source), "-o", str(target)]) == 0
    with Image.open(target) as restored:
        np.testing.assert_array_equal(restored, pixels.repeat(2, axis=0).repeat(2, axis=1))
    image = pixels.transpose(2, 0, 1)[None]
    expected = (image / np.float32(255)).repeat(2, axis=2).repeat(2, axis=3)
    case = ReferenceCase({"input": image}, {"output": expected.astype(np.float32)})
    write_references(model.with_suffix(".npz"), [case], {})
    capsys.readouterr()
    assert main(["validate", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["library_reason"] == "numpy takes the steps"
    baseline = ["check", str(model), "--baseline", str(tmp_path / "baseline.json"), "-q"]
    assert main([*baseline, "--update"]) == 0
    assert main(baseline) == 0
    case.outputs["output"][0, 0, 0, 0] += 0.5
    write_references(model.with_suffix(".npz"), [case], {})
    assert main(["validate", str(model), "--backend", "toy", "-q"]) == 1
    assert main(baseline) == 1


def test_images_are_shared_by_processes_and_threads(model: Path, tmp_path: Path) -> None:
    session = Session(model)
    assert (session.backend, session.kind.artifact) == ("toy", "toy")
    assert memory_meter(session) is not None
    folder = tmp_path / "in"
    folder.mkdir()
    for place in range(4):
        Image.new("RGB", (3 + place, 4)).save(folder / f"{place}.png")
    results = run_images(session, folder, tmp_path / "out", RunOptions(quiet=True))
    assert [result.output_size for result in results] == [(6, 8), (8, 8), (10, 8), (12, 8)]


@pytest.mark.full
def test_it_is_timed_beside_the_others(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A child process imports the row from its package; here the toy's module is copied."""
    honest = bench_module.session_configuration

    def configured(path: Any, backend: str, *rest: Any, **more: Any) -> Any:
        made = honest(path, backend, *rest, **more)
        assert made.request["device"] is False
        return replace(made, worker="toy_backend") if backend == "toy" else made

    monkeypatch.setattr(bench_module, "session_configuration", configured)
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
    other = save_upscaler(model.with_name("two.onnx"), metadata=nystra_metadata())
    arguments = ["--backends", "ort-cpu,toy", "--sizes", "8x8", "--seconds", "0.05", "--runs", "3"]
    assert main(["bench", str(other), str(model), *arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["backend"], row["measured"]) for row in rows] == [
        *(("ort-cpu", True), ("toy", False)),  # the ONNX file
        *(("ort-cpu", False), ("toy", True)),  # the program
    ]
    assert "is not an ONNX file" in rows[2]["reason"]
    assert rows[3]["note"] == "numpy takes the steps"


def test_files_of_other_kinds_and_precisions_are_refused(tmp_path: Path, model: Path) -> None:
    upscaler = save_upscaler(tmp_path / "two.onnx", metadata=nystra_metadata())
    with pytest.raises(
        NystraError, match="toy opens toy files, this is a file of onnx: use `backend` ort-cpu"
    ):
        Session(upscaler, "toy")
    assert Session(upscaler).backend == "ort-cpu"
    with pytest.raises(
        NystraError, match="ort-cpu opens onnx files, this is a file of toy: use `backend` toy"
    ):
        Session(model, "ort-cpu")
    half = save_program(tmp_path / "h.toy", nystra_metadata() | {"nystra.precision": "fp16"})
    with pytest.raises(BackendUnavailableError, match="toy has no arithmetic of that type: use"):
        Session(half)
    (tmp_path / "odd.toy").write_text("{")
    with pytest.raises(NystraError, match="the program"):
        Session(tmp_path / "odd.toy")


def test_its_options_are_read_as_it_declares_them(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = np.ones((1, 3, 2, 2), np.float32)
    spec = SessionSpec(model, options={"gain": 3})
    assert Session.open(spec)(image).max() == 3
    assert Session(model, options={"gain": "2.5"})(image).max() == 2.5
    sent = SessionSpec.from_dict(json.loads(json.dumps(spec.as_dict())))
    assert Session.open(sent)(image).max() == 3
    for options, message in (
        ({"gain": -1.0}, "`gain` is -1.0, expected a number of 0 or more"),
        ({"bits": 4}, "toy has no option bits: expected gain"),
    ):
        with pytest.raises(NystraError, match=message):
            Session(model, options=options)
    with pytest.raises(NystraError, match="toy takes no device: got 'toy:1', expected 'toy'"):
        Session(model, "toy:1")
    upscaler = save_upscaler(model.with_name("two.onnx"))
    with pytest.raises(NystraError, match="ort-cpu has no option gain: expected none"):
        Session(upscaler, "ort-cpu", options={"gain": 1.0})
    command = ["inspect", str(upscaler), "--backend", "ort-cpu", "--backend-option"]
    for text, message in (("gain=1", "ort-cpu has no option gain"), ("gain", "is not NAME=VALUE")):
        assert main([*command, text]) == 2
        assert message in capsys.readouterr().err


CUDA = ("tensorrt", "tensorrt-rtx", "ort-cuda", "ort-tensorrt")


def test_every_backend_says_what_it_is() -> None:
    for name in backend_names():
        kind = find_backend(name)
        assert kind.device in ("cpu", "cuda")
        assert kind.device == ("cuda" if name in CUDA else "cpu")
        assert (kind.engine and kind.engine.name) == (
            name if name in ("tensorrt", "tensorrt-rtx") else None
        )
        assert "fp32" in kind.precisions
        assert (kind.library_name is None) == (name == "ort")
        assert kind.bodies == (kind.engine is None)
        assert kind.artifact == "onnx"
        assert kind.measures_memory == (name in ("ort-cpu", "openvino"))
        assert kind.concurrent == (name == "ort-cpu")


def test_a_backend_is_registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(backends, "_REGISTERED", {})
    monkeypatch.delitem(sys.modules, HOME, raising=False)
    path = save_program(tmp_path / "two.toy", nystra_metadata())
    with pytest.raises(NystraError, match="unknown backend 'toy'"):
        Session(path, "toy")
    with pytest.raises(NystraError, match="is not an ONNX file"):
        Session(path)
    kind = toy_module().ToyBackend
    register_backend("toy", kind)
    for name in ("toy", "auto"):
        assert Session(path, name)(np.ones((1, 3, 2, 2), np.float32)).shape == (1, 3, 4, 4)
    assert "toy" not in backend_names()  # which is the table
    with pytest.raises(NystraError, match="a backend 'ort-cpu' is already registered"):
        register_backend("ort-cpu", kind)


@pytest.mark.full
def test_pytorch_is_a_backend_like_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backends, "_REGISTERED", {})
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
