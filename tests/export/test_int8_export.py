"""Exports in int8: calibrated with images, validated, run by every program that supports them."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, numpy_helper
from torch import nn

from nystra.cli.main import main
from nystra.export import (
    ExportOptions,
    ExportResult,
    Plan,
    export_model,
    export_module,
    mechanism,
)
from nystra.export.load.images import photographs
from nystra.export.validate.fake_quantized import quantize_network
from nystra.models import load
from nystra.models.architecture import PrecisionPolicy
from nystra.plugins import native
from nystra.plugins.library import library_path
from nystra.runtime import Session, write_image
from nystra.runtime.images.image_data import ImageData
from nystra.runtime.images.images import read_image
from nystra.runtime.metrics.measures import clip_and_measure_psnr
from nystra.runtime.model.references import read_references
from processor import require_exact_int8
from scaled_swinir import checkpoint
from shared import shared_path
from studies.precision.int8 import planes
from tensorrt_tools import SDKS, use_sdk
from vit_tools import tiny_checkpoint

CLUSTER = Plan(mechanism("cluster", clusters=(2, 2)))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for path in photographs().values():
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def int8(images: Path, tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    require_exact_int8()
    folder = tmp_path_factory.mktemp("int8")
    options = ExportOptions(CLUSTER, precision="int8", calibrate=images, speed=False)
    return export_model(checkpoint(folder), folder, options)


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        (None, "give --calibrate FOLDER"),
        ("missing", "missing is not a folder"),
        ("empty", "empty holds no images"),
    ],
)
def test_images_are_needed(
    folder: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkpoint(tmp_path)
    (tmp_path / "empty").mkdir()
    given = [] if folder is None else ["--calibrate", str(tmp_path / folder)]
    arguments = ["export", str(path), "-o", str(tmp_path), "--precision", "int8", *given]
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "tiny.safetensors"]


def test_the_fake_quantized_network_spares_layers_that_went_back(
    tmp_path: Path,
) -> None:
    network = load(checkpoint(tmp_path)).network
    before = {key: value.clone() for key, value in network.state_dict().items()}
    image = torch.rand(1, 3, 16, 16)
    paths = [
        path
        for path, module in network.named_modules()
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear)
    ]
    with torch.no_grad():
        exact = network(image)
        errors = [
            float((quantize_network(network, PrecisionPolicy(), spared)(image) - exact).abs().max())
            for spared in ((), paths[:1], paths)
        ]
    assert errors[0] > 1e-4
    assert errors[0] != errors[1] > 0.0
    assert errors[2] == 0.0
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key]), "the network itself is rounded"


@pytest.mark.release
def test_a_file_that_differs_names_what_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its calibration images are dark and alike: brighter inputs are clipped."""
    (tmp_path / "images").mkdir()
    for number in range(5):
        flat = np.full((32, 32, 3), 0.1 + 0.002 * number, np.float32)
        write_image(tmp_path / f"images/{number}.png", ImageData(flat))
    arguments = ["swinir_x2_w16", "-o", str(tmp_path), "--precision", "int8", "--calibrate"]
    assert main(["export", *arguments, str(tmp_path / "images")]) == 1
    said = capsys.readouterr().err
    assert "the largest difference is" in said
    assert "the ranges of int8 are those of the images of --calibrate" in said
    assert "with a higher --min-psnr" in said


@pytest.mark.full
def test_name_metadata_and_manifest(int8: ExportResult) -> None:
    assert int8.model.name == "tiny_2x_dynamic_int8_op20_cluster.onnx"
    assert Session(int8.model).facts.precision == int8.precision == "int8"
    found = json.loads(int8.model.with_suffix(".json").read_text())["validation"]["precision"]
    assert found["name"] == "int8"
    assert found["images"] == 3
    assert found["psnr_against_float32"] >= 50.0
    assert found["int8_layers"] > 0
    assert any("layers in int8" in text for text in int8.notes)
    assert int8.validation.passed
    assert set(int8.validation.reports) >= {"ort-cpu", "twin"}
    stated = json.loads(Session(int8.model).metadata.get("nystra.exact_layers", "[]"))
    assert sorted(stated) == sorted(found["returned"])
    stored = onnx.load(str(int8.model)).graph.initializer
    weights = [t for t in stored if t.data_type == TensorProto.INT8 and len(t.dims) > 1]
    assert len(weights) == found["int8_layers"]


@pytest.mark.full
@pytest.mark.parametrize("backend", ["ort-cpu", "openvino"])
def test_it_runs_with_and_without_the_library(int8: ExportResult, backend: str) -> None:
    if importlib.util.find_spec("openvino" if backend == "openvino" else "onnxruntime") is None:
        pytest.skip(f"{backend} is not installed")
    try:
        library_path()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    allowed = max(read_references(int8.model.with_suffix(".npz")).meta["tolerances"])
    image = np.random.default_rng(0).random((1, 3, 9, 20), np.float32)
    want = Session(int8.model, "ort-cpu", 1, None)(image)
    for library in ("auto", None):
        got = Session(int8.model, backend, 1, library)(image)
        assert got.shape == (1, 3, 18, 40)
        assert np.abs(got - want).max() <= allowed


def of_a_fifth(right: ExportResult, folder: Path) -> list[str]:
    """Return the validation of the file with a fifth of the range of the first layer."""
    wrong = onnx.load(str(right.model))
    scale = next(t for t in wrong.graph.initializer if t.name.endswith(".input_scale"))
    fifth = numpy_helper.to_array(scale) / np.float32(5)
    scale.CopyFrom(numpy_helper.from_array(np.asarray(fifth), scale.name))
    onnx.save(wrong, str(folder / "wrong.onnx"))
    references = str(right.model.with_suffix(".npz"))
    return ["validate", str(folder / "wrong.onnx"), "--references", references, "-q"]


@pytest.mark.full
def test_it_is_checked_again_later(
    int8: ExportResult, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model, source = str(int8.model), str(int8.model.parent / "tiny.safetensors")
    recorded = read_references(int8.model.with_suffix(".npz")).meta["tolerances"]
    assert main(["validate", model, "--checkpoint", source, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [size["tolerance"] for size in document["sizes"]] == pytest.approx(recorded, rel=1e-3)
    assert main(of_a_fifth(int8, tmp_path)) == 1
    assert main(["export", model, "--precision", "int8", "--calibrate", str(tmp_path)]) == 2
    assert "already has operators of nystra: export again from" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.skipif(not native.available(), reason="libnystra_cpu.so is not built")
def test_it_is_judged_in_bfloat16_too(int8: ExportResult, tmp_path: Path) -> None:
    """The fake-quantized network rounds the other layers to bfloat16."""
    pytest.importorskip("openvino", reason="nystra[openvino] is not installed")
    low = ["--backend", "openvino", "--precision", "bf16"]
    assert main(["validate", str(int8.model), "-q", *low]) == 0
    assert main([*of_a_fifth(int8, tmp_path), *low]) == 1
    recorded = read_references(int8.model.with_suffix(".npz")).meta
    for name in ("tolerances", "mean_tolerances"):
        own, lowered = recorded[name], recorded[f"{name}_in"]["bf16"]
        assert all(0 < size <= 1.5 * high for size, high in zip(own, lowered, strict=True))


@pytest.mark.full
class Loud(nn.Module):
    """Norms whose gain of some channels is 300, which the layer behind undoes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 3, 3, 1, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        for norm, layer in zip(self.norms, self.layers, strict=True):
            norm.weight.data[::4] *= 300
            layer.weight.data[:, ::4] /= 300

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).permute(0, 2, 3, 1)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            y = y + layer(norm(y))
        return x + self.last(y.permute(0, 3, 1, 2))


@pytest.mark.full
def test_layers_behind_loud_channels_return_to_float32(images: Path, tmp_path: Path) -> None:
    """Their other channels would have two of the 255 steps."""
    require_exact_int8()
    torch.manual_seed(0)
    network = Loud().eval()
    options = ExportOptions(precision="int8", calibrate=images, speed=False)
    result = export_module(network, tmp_path / "m.onnx", options)
    found = json.loads(result.model.with_suffix(".json").read_text())["validation"]["precision"]
    assert any("returned to float32" in text for text in result.notes)
    assert {path for path in found["returned"] if "layers" in path}, found
    assert found["psnr_against_float32"] >= 50.0
    image = read_image(next(iter(photographs().values()))).pixels[:64, :96].transpose(2, 0, 1)
    given = torch.from_numpy(np.ascontiguousarray(image[None], np.float32))
    with torch.no_grad():
        expected = network(given).numpy()
    got = Session(result.model, backend="ort-cpu", threads=1)(given.numpy())
    assert clip_and_measure_psnr(got, expected) > 45


@pytest.mark.full
def test_a_classifier_is_calibrated_as_its_images_are_prepared(
    images: Path, tmp_path: Path
) -> None:
    require_exact_int8()
    hyper = {"num_heads": 2, "image_size": (8, 12)}
    options = ExportOptions(precision="int8", calibrate=images, hyper=hyper, speed=False)
    result = export_model(tiny_checkpoint(tmp_path), tmp_path, options)
    found = json.loads(result.model.with_suffix(".json").read_text())["validation"]["precision"]
    assert found["int8_layers"] > 0
    assert found["relative_error_against_float32"] <= 0.05
    recorded = read_references(result.model.with_suffix(".npz")).meta
    for name in ("tolerances", "mean_tolerances"):
        assert len(set(recorded[name])) == 1, "five logits of one image say little of rounding"
    assert main(["validate", str(result.model), "-q"]) == 0
    assert main(of_a_fifth(result, tmp_path)) == 1


@pytest.mark.release
def test_five_photographs_calibrate_for_text_too(tmp_path: Path) -> None:
    """The book cover of Set14: 35.5 dB without copies of twice the contrast."""
    require_exact_int8()
    photos = shared_path("data", "set5", "LR_bicubic", "X2")
    cover = planes(shared_path("data", "set14", "image_SRF_2", "img_013_SRF_2_LR.png"))
    options = ExportOptions(precision="int8", calibrate=photos, speed=False)
    result = export_model("swinir_x2_w32_nobias", tmp_path, options)
    exact = load("swinir_x2_w32_nobias").network
    with torch.inference_mode():
        want = exact(torch.from_numpy(cover)).numpy()
    assert clip_and_measure_psnr(Session(result.model)(cover), want) >= 50.0


@pytest.mark.full
@pytest.mark.parametrize("sdk", SDKS)
def test_tensorrt_takes_it(int8: ExportResult, sdk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from nystra.runtime.checking.dry_run import dry_run
    from nystra.runtime.compiled.model import EngineModel
    from nystra.runtime.engines.build import BuildOptions

    backend = use_sdk(sdk, monkeypatch)
    options = BuildOptions(backend, targets=("sm86",) if backend == "tensorrt-rtx" else ())
    verdict = dry_run(EngineModel.open(int8.model, "none"), options)
    assert verdict.accepted, verdict.refusal
