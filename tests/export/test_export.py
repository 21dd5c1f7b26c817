"""The exported graph: every mechanism, every size, in plain onnxruntime."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from exported_files import swinir_files, tiny_swinir
from exports import NYSTRA, checkpoint, export
from nystra.core.errors import NystraError, UnsupportedModelError
from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.export.attention.site import find_sites, swap
from nystra.export.tracing.site_graph import trace_network
from nystra.models.checkpoints.restorer import restorer_facts
from nystra.models.swinir.network import SwinIR
from nystra.runtime import Session


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swinir_files(tmp_path_factory) / "model.onnx"


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inline")
    return export(folder, ExportOptions(NYSTRA, functions="inline", static=(1, 3, 19, 23)))


def plain_session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.full
@pytest.mark.parametrize("opset", [18, pytest.param(19, marks=pytest.mark.release), 20])
def test_opsets_and_any_size(tmp_path: Path, attached: Path, opset: int) -> None:
    path = attached if opset == 20 else export(tmp_path, ExportOptions(NYSTRA, opset=opset))
    model = onnx.load(str(path))
    assert {opset.domain: opset.version for opset in model.opset_import} == {"": opset, "nystra": 1}
    imports = {
        function.name: {entry.domain: entry.version for entry in function.opset_import}
        for function in model.functions
    }
    assert imports == {
        "NystraPinv": {"": opset},
        "NystraWindowNystrom": {"": opset, "nystra": 1},  # its body holds a NystraPinv node
    }
    dims = [
        dim.dim_param or dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim
    ]
    assert dims == ["batch", 3, "2*height", "2*width"]
    session = plain_session(path)
    network: nn.Module = tiny_swinir()
    parameters = {site.path: NYSTRA.default for site in find_sites(network)}
    network = swap(network, parameters)
    generator = np.random.default_rng(0)
    for shape in ((1, 3, 1, 1), (2, 3, 2, 3), (1, 3, 5, 40), (3, 3, 13, 17), (1, 3, 16, 8)):
        image = generator.random(shape, dtype=np.float32)
        (got,) = session.run(None, {"input": image})
        with torch.no_grad():
            expected = network(torch.from_numpy(image)).numpy()
        np.testing.assert_allclose(got, expected, atol=2e-5, rtol=0)


@pytest.mark.full
def test_static_shape(tmp_path: Path) -> None:
    path = export(tmp_path, ExportOptions(NYSTRA, static=(1, 3, 20, 28)))
    session = Session(path)
    assert session.inputs[0].shape == (1, 3, 20, 28)
    assert session(np.zeros((1, 3, 20, 28), np.float32)).shape == (1, 3, 40, 56)


@pytest.mark.full
def test_inline_is_plain_onnx(inline: Path) -> None:
    model = onnx.load(str(inline))
    assert [opset.domain for opset in model.opset_import] == [""]
    assert not model.functions
    assert {node.domain for node in model.graph.node} == {""}
    onnx.checker.check_model(model, full_check=True)


def test_the_inlined_file_gives_the_same_image(attached: Path, inline: Path) -> None:
    image = np.random.default_rng(1).random((1, 3, 19, 23), dtype=np.float32)
    a, b = (plain_session(path).run(None, {"input": image})[0] for path in (attached, inline))
    np.testing.assert_allclose(a, b, atol=2e-6, rtol=0)


@pytest.mark.full
@pytest.mark.parametrize(
    "more",
    [
        {"upsampler": "nearest+conv", "upscale": 4, "resi_connection": "3conv"},
        {"upsampler": "", "upscale": 1},
        {"upsampler": "", "upscale": 1, "in_chans": 1},
        {"upsampler": "pixelshuffle", "upscale": 3},
        {"upsampler": "", "upscale": 1, "window_size": 7},
    ],
    ids=["real", "denoise", "gray", "x3", "jpeg"],
)
def test_variants(tmp_path: Path, more: dict[str, Any]) -> None:
    plan = Plan(mechanism("nystromformer", landmarks=(2, 2)))
    one_size = (1, more.get("in_chans", 3), 16, 16)
    path = export(tmp_path, ExportOptions(plan, static=one_size), **more)
    facts = Session(path).facts
    assert facts.scale == more["upscale"]
    assert facts.image.channels == more.get("in_chans", 3)
    plan = json.loads(path.with_suffix(".plan.json").read_text())
    last = plan["sites"]["layers.0.residual_group.blocks.1.attn"]
    if more.get("window_size") == 7:
        assert last["mechanism"] == "full"
        assert "cuts a landmark cell" in last["reason"]
    else:
        assert last["mechanism"] == "nystromformer"


def test_metadata_and_manifest(attached: Path) -> None:
    session = Session(attached)
    metadata = session.metadata
    assert metadata["architecture"] == "swinir"
    assert metadata["scale"] == "2"
    assert metadata["license"] == "CC0-1.0"
    assert float(metadata["nystra.psnr_vs_torch"]) > 80
    assert json.loads(metadata["nystra.io"])[0]["role"] == "image"
    assert set(json.loads(metadata["nystra.attention"])["sites"]) == {
        f"layers.0.residual_group.blocks.{index}.attn" for index in (0, 1)
    }
    manifest = json.loads(attached.with_suffix(".json").read_text())
    assert set(manifest["files"]) == {"model.onnx", "model.npz", "model.plan.json"}
    assert manifest["source"]["sha256"] == metadata["nystra.source_sha256"]
    assert manifest["validation"]["against_torch"]["passed"] is True
    assert not any(node.doc_string for node in onnx.load(str(attached)).graph.node)


@pytest.mark.full
def test_a_written_plan_can_be_used_again(attached: Path, tmp_path: Path) -> None:
    from nystra.export import read_plan

    plan = attached.with_suffix(".plan.json")
    again = export_model(
        attached.parent / "tiny.safetensors",
        tmp_path / "n.onnx",
        ExportOptions(read_plan(plan), static=(1, 3, 16, 16), speed=False),
    )
    assert (tmp_path / "n.plan.json").read_bytes() == plan.read_bytes()
    assert not [text for text in again.warnings if "another checkpoint" in text]


@pytest.mark.full
def test_a_plan_of_another_checkpoint_is_a_warning(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    plan = Plan(NYSTRA.default, source_sha256="f" * 64)
    result = export_model(path, tmp_path, ExportOptions(plan, speed=False))
    assert any("made for another checkpoint" in text for text in result.warnings)
    assert result.model.name == "tiny_2x_dynamic_fp32_op20_nystra.onnx"


def test_a_plan_of_another_window_contradicts(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    options = ExportOptions(Plan(NYSTRA.default, window=(16, 16)), {"window_size": 8})
    with pytest.raises(NystraError, match="the plan is for the window"):
        export_model(path, tmp_path, options)


@pytest.mark.full
def test_larger_window_says_what_it_costs(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    options = ExportOptions(NYSTRA, {"window_size": 16}, static=(1, 3, 16, 16), speed=False)
    result = export_model(path, tmp_path, options)
    assert any("instead of the trained 8x8" in text for text in result.warnings)
    assert result.fidelity.as_trained
    assert json.loads(result.model.with_suffix(".plan.json").read_text())["window"] == [16, 16]


@pytest.mark.full
def test_absolute_position_embedding_needs_a_static_shape(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, ape=True, img_size=16)
    with pytest.raises(UnsupportedModelError, match="`static` 1x3x16x16"):
        export_model(path, tmp_path, ExportOptions(speed=False))
    static = ExportOptions(static=(1, 3, 16, 16), speed=False)
    assert export_model(path, tmp_path, static).validation.passed


@pytest.mark.full
def test_where_linear_attention_cannot_pay(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, window_size=4)
    options = ExportOptions(Plan(mechanism("nystra")), static=(1, 3, 16, 16), speed=False)
    result = export_model(path, tmp_path, options)
    assert any("linear attention cannot be faster at 2 sites" in text for text in result.warnings)


@pytest.mark.release
def test_swinir_m_has_fewer_than_a_thousand_nodes() -> None:
    """With one node per site: exact attention in shifted windows, linear in the others."""
    network = SwinIR(
        upscale=2,
        embed_dim=60,
        depths=[6] * 6,
        num_heads=[6] * 6,
        window_size=8,
        upsampler="pixelshuffle",
    ).eval()
    facts = restorer_facts("swinir", network, {"in_chans": 3}, "none")
    parameters = {
        site.path: mechanism(("nystra", "full")[place % 2])
        for place, site in enumerate(find_sites(network))
    }
    model = trace_network(network, facts, 20).write_mechanisms(parameters)
    assert len(model.graph.node) < 1000
    named = [node.name for node in model.graph.node if node.domain == "nystra"]
    assert named == list(parameters)
