"""RVRT as a file: frames fixed, height and width free, the same numbers as PyTorch's."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.site import resolve, swap
from nystra.export.cli import main
from nystra.export.graph.bodies import attach_bodies
from nystra.export.graph.tidy import tidy
from nystra.export.graph.trace import trace
from nystra.export.stages.preparing import fixed_facts
from nystra.models import load
from nystra.plugins.ports.examples import example_arrays
from nystra.runtime.session import Session
from rvrt_tools import SMALL, save_small


def test_inspect_counts_sites_and_operations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_small(tmp_path / "small.safetensors")
    assert main(["inspect", str(path), "--frames", "2", "--attn", "nystra", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["flops"]["shape"] == [1, 2, 3, 16, 16]
    tokens = {site["path"]: site["tokens"] for site in document["sites"]}
    assert sorted(tokens.values()) == [16] * 4 + [32] * 8
    assert all(count == 32 for path, count in tokens.items() if path.startswith("backbone."))
    per_key = 2 * 2 * (2 * 16 * 16) * SMALL["embed_dim"]  # two products with every token
    assert document["flops"]["attention"] == per_key * sum(tokens.values())
    assert document["flops"]["network"] > 2 * document["flops"]["attention"]
    assert all(site["error"] > 0 for site in document["sites"])


@pytest.mark.full
def test_a_film_of_one_clip(tmp_path: Path) -> None:
    """Two frames see no alignment; four are a matter of minutes and of docs/rvrt.md."""
    path = save_small(tmp_path / "small.safetensors")
    exact = "backbone.forward_2.main.5.0.residual_group.blocks.1.attn"
    plan = Plan(mechanism("nystra", landmarks=(2, 2)), {exact: Full()})
    options = ExportOptions(plan, {"frames": 2}, opset=18, speed=False)
    result = export_model(path, tmp_path / "film.onnx", options)
    assert len(result.judgement.tolerances) == 3
    assert {site.name for site in result.source.resolved.values()} == {"full", "nystra"}
    session = Session(result.model, threads=1)
    (port,) = session.facts.inputs
    assert session.inputs[0].shape == ("batch", 2, 3, "height", "width")
    assert session.outputs[0].shape == ("batch", 2, 3, "4*height", "4*width")
    assert (port.role, session.facts.task, session.facts.window) == ("frames", "video", (2, 4, 4))
    feeds = example_arrays([port], {"batch": 1, "height": 7, "width": 9})
    film = torch.from_numpy(feeds["input"])
    network = load(path, frames=2).network
    with torch.no_grad():
        wanted = swap(network, result.source.resolved)(film).numpy()
    for library in ("none", "auto"):
        got = Session(result.model, threads=1, library=library).run(feeds)["output"]
        np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("static", [None, (1, 2, 3, 18, 21)])
def test_a_network_that_keeps_the_size(static: tuple[int, ...] | None, tmp_path: Path) -> None:
    """Deblurring and denoising: features of a quarter of the sides, any height and width."""
    loaded = load(save_small(tmp_path / "small.safetensors", upscale=1, in_chans=3), frames=2)
    facts = fixed_facts(loaded.facts, static)
    resolved = resolve(Plan(mechanism("nystra", landmarks=(2, 2))), loaded.network)
    ready = swap(loaded.network, resolved, "operator")
    model = trace(ready, facts, 20)
    if static:
        tidied = [model, trace(ready, facts, 20)]
        for one in tidied:
            tidy(one, facts.inputs, facts.outputs)
        assert tidied[0].SerializeToString() == tidied[1].SerializeToString()
    weights = {tensor.name for tensor in model.graph.initializer}
    convolutions = [node.input[1] for node in model.graph.node if node.op_type == "Conv"]
    assert {"upsampler.0.weight", "feat_extract.1.weight"} <= set(convolutions) <= weights
    attach_bodies(model, 20)
    (tmp_path / "film.onnx").write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(tmp_path / "film.onnx")
    plain = swap(loaded.network, resolved)
    for sides in [static[3:]] if static else [(5, 5), (16, 16), (7, 33), (37, 50)]:
        film = torch.rand(1, 2, 3, *sides)
        with torch.no_grad():
            wanted = plain(film).numpy()
        (got,) = session.run(None, {"input": film.numpy()})
        np.testing.assert_allclose(got, wanted, atol=1e-5)
