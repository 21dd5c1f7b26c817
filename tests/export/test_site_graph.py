"""Networks with declared sites are traced once, whichever mechanisms are written."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from exported_files import tiny_swinir
from exports import NYSTRA, checkpoint
from later import full, release
from nystra.export import ExportOptions, export_model, mechanism
from nystra.export.attention.plan import Plan
from nystra.export.attention.site import find_sites, resolve, swap
from nystra.export.tracing import programs
from nystra.export.tracing.bodies import attach_bodies
from nystra.export.tracing.site_graph import SiteGraph, trace_network
from nystra.models import pretrained
from nystra.models.checkpoints.restorer import restorer_facts
from nystra.models.loading import load
from vit_tools import TOLD, tiny_checkpoint

PRETRAINED = Path(pretrained.__file__).parent


def run(model: onnx.ModelProto, image: np.ndarray) -> np.ndarray:
    attach_bodies(model)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    output: np.ndarray = session.run(None, {session.get_inputs()[0].name: image})[0]
    return output


def check(graph: SiteGraph, name: str, image: np.ndarray) -> Counter[str]:
    """Compare the graph of a mechanism with PyTorch; return its operators, counted."""
    resolved = resolve(Plan(default=mechanism(name)), graph.network)
    model = graph.write_mechanisms(resolved)
    operators = Counter(node.op_type for node in model.graph.node if node.domain == "nystra")
    with torch.no_grad():
        expected = swap(graph.network, resolved)(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(run(model, image), expected, atol=3e-5, rtol=0)
    return operators


@pytest.mark.full
def test_several_mechanisms_are_written_into_one_graph() -> None:
    network = tiny_swinir()
    facts = restorer_facts("swinir", network, {"in_chans": 3}, "none")
    graph = trace_network(network, facts, 20)
    image = np.random.default_rng(0).random((2, 3, 13, 18), np.float32)
    sites = len(find_sites(network))
    for name, operator in (
        ("nystra", "NystraWindowNystrom"),
        ("full", "NystraWindowSoftmax"),
        ("cluster", "NystraWindowCluster"),
        ("nystra", "NystraWindowNystrom"),
    ):
        assert check(graph, name, image)[operator] == sites


@pytest.mark.full
def test_nodes_have_the_names_of_their_sites() -> None:
    network = tiny_swinir()
    facts = restorer_facts("swinir", network, {"in_chans": 3}, "none")
    graph = trace_network(network, facts, 20)
    model = graph.write_mechanisms(resolve(Plan(default=mechanism("full")), network))
    named = [node.name for node in model.graph.node if node.domain == "nystra"]
    assert named == [site.path for site in find_sites(network)]


@pytest.mark.parametrize(
    "name", [*full("hat_x2_w16"), *release("uformer_denoise25_w16", "sst_x2_w64")]
)
def test_the_shipped_networks(name: str) -> None:
    loaded = load(PRETRAINED / f"{name}.safetensors")
    graph = trace_network(loaded.network, loaded.facts, 20)
    image = np.random.default_rng(0).random((1, 3, 70, 96), np.float32)
    for attention in ("full", "nystra", "cluster"):
        check(graph, attention, image)


@pytest.mark.full
def test_an_export_with_timing_traces_the_network_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = list[str]()
    whole: Any = programs.program_of

    def counted(network: Any, *more: Any, **options: Any) -> Any:
        traced.append(type(network).__name__)
        return whole(network, *more, **options)

    monkeypatch.setattr("nystra.export.tracing.trace.program_of", counted)
    options = ExportOptions(NYSTRA, speed=True, static=(1, 3, 16, 16))
    export_model(checkpoint(tmp_path), tmp_path, options)
    assert traced == ["SwinIR"]


@pytest.mark.full
def test_attention_with_weights_of_its_own(tmp_path: Path) -> None:
    """What is recorded of its call holds tensors of the trace, which cannot be copied."""
    trained = {"attention": "nystromformer", "num_landmarks": 5, "conv_kernel_size": 3}
    stated = TOLD | {"num_landmarks": 5}
    options = ExportOptions(Plan(mechanism("as_trained")), stated, speed=False)
    path = tiny_checkpoint(tmp_path, **trained)
    assert export_model(path, tmp_path / "m.onnx", options).validation.passed
