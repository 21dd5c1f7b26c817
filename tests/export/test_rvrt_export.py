"""RVRT as a file: fixed frames, free height and width, the output of PyTorch."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from nystra.cli.main import main
from nystra.export import ExportOptions, ExportResult, Plan, export_model, mechanism
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.site import resolve, swap
from nystra.export.tracing.bodies import attach_bodies
from nystra.export.tracing.site_graph import trace_network
from nystra.models import load
from nystra.runtime import Session, read_image
from studies.precision.small import RVRT_HYPER, save_rvrt
from video_files import save_frames


@pytest.mark.full
def test_inspect_counts_sites_and_operations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_rvrt(tmp_path / "small.safetensors")
    assert main(["inspect", str(path), "--frames", "2", "--attn", "nystra", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["flops"]["shape"] == [1, 2, 3, 16, 16]
    tokens = {site["path"]: site["tokens"] for site in document["sites"]}
    assert sorted(tokens.values()) == [16] * 4 + [32] * 8
    assert all(count == 32 for path, count in tokens.items() if path.startswith("backbone."))
    per_key = 2 * 2 * (2 * 16 * 16) * RVRT_HYPER["embed_dim"]  # two products with every token
    assert document["flops"]["attention"] == per_key * sum(tokens.values())
    assert document["flops"]["network"] > 2 * document["flops"]["attention"]
    assert all(site["error"] > 0 for site in document["sites"])


@pytest.mark.release
def test_a_film_of_two_clips(tmp_path: Path) -> None:
    """Two clips exercise the alignment; more of them exercise nothing else."""
    path = save_rvrt(tmp_path / "small.safetensors")
    linear = "backbone.forward_2.main.5.0.residual_group.blocks.1.attn"
    plan = Plan(Full(), {linear: mechanism("nystra", landmarks=(2, 2))})
    options = ExportOptions(plan, {"frames": 4}, opset=18, speed=False)
    result = export_model(path, tmp_path / "film.onnx", options)
    assert len(result.validation.tolerances) == 3
    assert {site.name for site in result.source.resolved.values()} == {"full", "nystra"}
    session = Session(result.model, threads=1)
    (port,) = session.facts.inputs
    assert session.inputs[0].shape == ("batch", 4, 3, "height", "width")
    assert session.outputs[0].shape == ("batch", 4, 3, "4*height", "4*width")
    assert (port.role, session.facts.task, session.facts.window) == ("frames", "video", (2, 4, 4))
    nodes = onnx.load(result.model).graph.node
    operators = {node.name.partition("#")[0] for node in nodes if node.domain == "nystra"}
    frame_by_frame = {path for path in result.source.resolved if not path.startswith("backbone")}
    assert operators == {linear, *frame_by_frame}
    restored_by_command(session, load(path, frames=4).network, result, tmp_path)


def restored_by_command(
    session: Session, network: nn.Module, result: ExportResult, folder: Path
) -> None:
    """Three frames through the command equal those of the video mirrored in time."""
    source = save_frames(folder / "in", 3, (9, 7))
    out = folder / "out"
    command = ["run", str(result.model), "-i", str(source), "-o", str(out), "--video", "-q"]
    assert main(command) == 0
    given = [read_image(source / f"f{index + 1}.png").pixels for index in (0, 1, 2, 1)]
    film = torch.from_numpy(np.stack(given)).permute(0, 3, 1, 2)[None]
    with torch.no_grad():
        wanted = swap(network, result.source.resolved)(film).numpy()
    np.testing.assert_allclose(session.run({"input": film.numpy()})["output"], wanted, atol=1e-5)
    names = sorted(path.name for path in out.iterdir())
    assert len(names) == 3
    for index, name in enumerate(names):
        pixels = read_image(out / name).pixels
        expected = wanted[0, index].transpose(1, 2, 0).clip(0, 1)
        np.testing.assert_allclose(pixels, expected, atol=0.51 / 255 + 1e-5)


@pytest.mark.release
def test_two_exports_are_the_same_bytes(tmp_path: Path) -> None:
    path = save_rvrt(tmp_path / "small.safetensors", upscale=1, in_chans=3)
    options = ExportOptions(Plan(Full()), static=(1, 4, 3, 9, 7), speed=False)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    one, other = (
        export_model(path, tmp_path / name / "m.onnx", options).model.read_bytes() for name in "ab"
    )
    assert one == other


@pytest.mark.release
def test_a_network_that_keeps_the_size(tmp_path: Path) -> None:
    """Deblurring and denoising: features at a quarter of the sides, any height and width."""
    loaded = load(save_rvrt(tmp_path / "small.safetensors", upscale=1, in_chans=4), frames=4)
    resolved = resolve(Plan(Full()), loaded.network)
    model = trace_network(loaded.network, loaded.facts, 20).write_mechanisms(resolved)
    weights = {tensor.name for tensor in model.graph.initializer}
    convolutions = [node.input[1] for node in model.graph.node if node.op_type == "Conv"]
    assert {"upsampler.0.weight", "feat_extract.1.weight"} <= set(convolutions) <= weights
    attach_bodies(model)
    (tmp_path / "film.onnx").write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(tmp_path / "film.onnx")
    plain = swap(loaded.network, resolved)
    for sides in [(5, 5), (16, 16), (7, 33), (37, 50)]:
        film = torch.rand(1, 4, 4, *sides)
        with torch.no_grad():
            wanted = plain(film).numpy()
        (got,) = session.run(None, {"input": film.numpy()})
        np.testing.assert_allclose(got, wanted, atol=1e-5)
