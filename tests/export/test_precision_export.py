"""Exports in low precision: validated, recorded, validated again later, refused if wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto

from nystra.cli.main import main
from nystra.core.errors import BackendUnavailableError, UnsupportedModelError
from nystra.export import ExportOptions, ExportResult, Plan, export_model, mechanism
from nystra.export.graph.precision import lowering
from nystra.export.load.images import validation_feeds
from nystra.export.load.source import Source
from nystra.export.transforms import TRANSFORMS
from nystra.export.validate.fake_quantized import round_digits, round_network
from nystra.export.validate.references import record_references
from nystra.models import load
from nystra.plugins.library import library_path
from nystra.runtime import Session
from nystra.runtime.model.references import read_references
from patch_networks import checkpoint as patch_checkpoint
from scaled_swinir import checkpoint

NYSTRA = Plan(mechanism("nystra", landmarks=(2, 2)))


def exported(folder: Path, precision: str, **more: Any) -> ExportResult:
    options = ExportOptions(NYSTRA, precision=precision, speed=False, **more)
    return export_model(checkpoint(folder), folder, options)


@pytest.fixture(scope="module")
def fp16(tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    return exported(tmp_path_factory.mktemp("fp16"), "fp16")


@pytest.fixture(scope="module")
def bf16(tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    return exported(tmp_path_factory.mktemp("bf16"), "bf16", static=(1, 3, 16, 16))


@pytest.mark.full
def test_loading_an_fp16_file_prints_nothing(
    fp16: ExportResult, capfd: pytest.CaptureFixture[str]
) -> None:
    """Except onnxruntime's warning of float16 constants that it does not fold."""
    Session(fp16.model, threads=1, library="none")
    assert capfd.readouterr().err == ""
    onnxruntime.InferenceSession(fp16.model, providers=["CPUExecutionProvider"])
    assert "onstant" in capfd.readouterr().err


@pytest.mark.full
def test_name_metadata_manifest_and_references(fp16: ExportResult) -> None:
    assert fp16.model.name == "tiny_2x_dynamic_fp16_op20_nystra.onnx"
    session = Session(fp16.model)
    assert session.facts.precision == fp16.precision == "fp16"
    assert [tensor.dtype for tensor in (*session.inputs, *session.outputs)] == ["float32"] * 2
    manifest = json.loads(fp16.model.with_suffix(".json").read_text())
    assert manifest["validation"]["precision"]["name"] == "fp16"
    assert manifest["validation"]["precision"]["low_nodes"] > 10
    meta = read_references(fp16.model.with_suffix(".npz")).meta
    assert meta["precision"] == "fp16"
    assert len(meta["tolerances"]) == 3
    assert 1e-4 <= min(meta["tolerances"]) <= max(meta["tolerances"]) < 1e-2


@pytest.mark.full
def test_what_is_judged(fp16: ExportResult, bf16: ExportResult) -> None:
    assert set(fp16.validation.reports) >= {"ort-cpu", "twin"}
    assert "ort-cpu" not in bf16.validation.reports
    assert "twin" in bf16.validation.reports
    for result in (fp16, bf16):
        errors = [size["max_abs"] for size in result.validation.reports["twin"]["sizes"]]
        assert max(errors) > 1e-6, "the copied rounds nothing"


@pytest.mark.full
def test_weights_take_half(fp16: ExportResult) -> None:
    stored = onnx.load(str(fp16.model)).graph.initializer
    low = sum(len(tensor.raw_data) for tensor in stored if tensor.data_type == TensorProto.FLOAT16)
    parameters = load(fp16.model.parent / "tiny.safetensors").network.parameters()
    whole = 4 * sum(parameter.numel() for parameter in parameters if parameter.dim() > 1)
    high = sum(
        np.prod(tensor.dims) * 4 for tensor in stored if tensor.data_type == TensorProto.FLOAT
    )
    assert 0.4 * whole < low < 0.6 * whole
    assert high < 0.2 * low


@pytest.mark.full
@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (2, 3, 9, 20), (3, 3, 16, 8)])
def test_with_and_without_the_library(fp16: ExportResult, shape: tuple[int, ...]) -> None:
    try:
        library = library_path()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    image = np.random.default_rng(0).random(shape, dtype=np.float32)
    kernel = Session(fp16.model, library=library)
    assert kernel.library is not None, kernel.library_reason
    body = Session(fp16.model, library=None)
    got, want = kernel(image), body(image)
    assert got.shape == (*shape[:2], 2 * shape[2], 2 * shape[3])
    # The same float32 inside both; borders round to half a unit of float16 differently.
    assert np.abs(got - want).max() <= min(read_references(_beside(fp16)).meta["tolerances"])


def _beside(result: ExportResult) -> Path:
    return result.model.with_suffix(".npz")


@pytest.mark.full
def test_validate_and_check_read_the_recorded_tolerances(
    fp16: ExportResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, baseline = str(fp16.model), str(tmp_path / "baseline.json")
    assert main(["validate", model, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    recorded = read_references(_beside(fp16)).meta["tolerances"]
    assert [size["tolerance"] for size in document["sizes"]] == recorded
    assert main(["validate", model, "--tolerance", "1e-7", "-q"]) == 1
    source = str(fp16.model.parent / "tiny.safetensors")
    assert main(["validate", model, "--checkpoint", source, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [size["tolerance"] for size in again["sizes"]] == pytest.approx(recorded)
    assert main(["check", model, "--baseline", baseline, "--update", "-q"]) == 0
    assert main(["check", model, "--baseline", baseline, "-q"]) == 0


@pytest.mark.full
def test_a_wrong_weight_fails(fp16: ExportResult, tmp_path: Path) -> None:
    model = onnx.load(str(fp16.model))
    weight = next(t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT16)
    values = np.frombuffer(weight.raw_data, np.float16) * np.float16(1.25)
    weight.raw_data = values.tobytes()
    wrong = tmp_path / "wrong.onnx"
    onnx.save(model, str(wrong))
    assert main(["validate", str(wrong), "--references", str(_beside(fp16)), "-q"]) == 1


@pytest.mark.full
def test_a_cpu_cannot_run_bf16(bf16: ExportResult, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BackendUnavailableError, match="tensorrt or tensorrt-rtx or ort-cuda"):
        Session(bf16.model, "ort-cpu")
    assert main(["validate", str(bf16.model), "--backend", "ort-cpu", "-q"]) == 3
    assert "no arithmetic of that type" in capsys.readouterr().err
    assert main(["inspect", str(bf16.model), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["metadata"]["nystra.precision"] == "bf16"
    assert {node["path"] for node in document["nodes"]} == {"not run here"}


def _kinds_at_nystra_nodes(path: Path) -> set[int]:
    model = onnx.load(str(path))
    casts = {n.output[0]: n.attribute[0].i for n in model.graph.node if n.op_type == "Cast"}
    stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    made = {name: node for node in model.graph.node for name in node.output}
    kinds = set()
    for node in model.graph.node:
        for name in node.input if node.domain == "nystra" else ():
            while name not in casts and made[name].op_type == "Add":
                name = made[name].input[0]  # the bias of the projection
            kinds.add(casts.get(name, stored.get(name, -1)))
    return kinds


@pytest.mark.full
def test_casts_around_nystra_nodes_in_bf16(bf16: ExportResult, tmp_path: Path) -> None:
    assert _kinds_at_nystra_nodes(bf16.model) == {TensorProto.FLOAT}
    alone = exported(tmp_path, "bf16", target="tensorrt")
    assert alone.model.name == "tiny_2x_dynamic_bf16-tensorrt_op20_nystra.onnx"
    assert TensorProto.FLOAT not in _kinds_at_nystra_nodes(alone.model)
    assert not [text for text in alone.warnings if "stay in float32" in text]
    with pytest.raises(BackendUnavailableError, match="`backend` tensorrt or tensorrt-rtx, or"):
        Session(alone.model)


def test_no_half_made_file_for_an_unknown_precision(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    for arguments in (["--precision", "fp8"], ["--precision", "fp16", "--target", "tensorrt"]):
        assert main(["export", str(path), "-o", str(tmp_path), *arguments]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.safetensors"]


@pytest.mark.full
def test_an_overflow_is_kept_out_and_a_planted_one_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint(tmp_path, mlp__fc1__weight=900.0, mlp__fc2__weight=6e4)
    arguments = ["export", str(path), "-o", str(tmp_path / "m.onnx"), "--attn", "nystra", "-q"]
    arguments += ["--landmarks", "2x2", "--precision", "fp16", "--static", "1x3x16x16"]
    arguments += ["--no-speed"]
    assert main(arguments) == 0
    manifest = json.loads((tmp_path / "m.json").read_text())
    kept = manifest["validation"]["precision"]["kept"]
    assert kept
    assert all("1/8 of the maximum of fp16" in reason for reason in kept.values())
    good = (tmp_path / "m.onnx").read_bytes()

    def nothing(_: Any, names: Any, __: Any) -> dict[str, float]:
        return dict.fromkeys(names, 0.0)

    monkeypatch.setattr(lowering, "measure_largest", nothing)
    assert main(arguments) == 1
    failed = json.loads((tmp_path / "m.failed.json").read_text())
    assert any(text.startswith("twin") for text in failed["validation"]["failures"])
    assert (tmp_path / "m.onnx").read_bytes() == good


@pytest.mark.release
def test_a_search_is_judged_by_its_mean(tmp_path: Path) -> None:
    source = patch_checkpoint("inpainting", tmp_path)
    options = ExportOptions(Plan(mechanism("psal")), precision="fp16", speed=False)
    result = export_model(source, tmp_path, options)
    assert result.validation.passed
    meta = read_references(_beside(result)).meta
    assert max(meta["mean_tolerances"]) < 1e-2
    nodes = [n for n in onnx.load(str(result.model)).graph.node if n.domain == "nystra"]
    assert [node.op_type for node in nodes] == ["NystraPatchMatch"]
    assert not [name for name in nodes[0].input if name.endswith(".fp16")]


def test_a_search_that_rounding_turns_is_refused(tmp_path: Path) -> None:
    loaded = load(checkpoint(tmp_path))
    resolved = {
        f"layers.0.residual_group.blocks.{place}.attn": mechanism("psal") for place in (0, 1)
    }
    feeds = validation_feeds(loaded.facts)
    with pytest.raises(UnsupportedModelError, match="makes the search find other matches"):
        record_references(Source(loaded, resolved), feeds, TRANSFORMS["fp16"])


def test_the_fake_quantized_network_rounds_and_nothing_else(tmp_path: Path) -> None:
    values = torch.tensor([1.0, 1.0 + 2**-11, 1.0 + 3 * 2**-11, -0.1, 1e30, 1e-30, 0.0])
    for digits, kind in ((11, torch.float16), (8, torch.bfloat16)):
        got = round_digits(values, digits)
        np.testing.assert_array_equal(got[:4], values[:4].to(kind).float())
        np.testing.assert_allclose(got[4:], values[4:], rtol=2.0**-digits)
    network = load(checkpoint(tmp_path)).network
    before = {key: value.clone() for key, value in network.state_dict().items()}
    rounded = round_network(network, "fp16")
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key]), "the network itself is rounded"
    image = torch.rand(1, 3, 16, 16)
    error = float((rounded(image) - network(image)).abs().max())
    assert 1e-6 < error < 1e-2
    assert (
        float((round_network(network, "bf16-tensorrt")(image) - network(image)).abs().max()) > error
    )
