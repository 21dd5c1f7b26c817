"""Vision transformers as files: any batch, with and without the library, and other attentions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from nystra.cli.main import export_main, main
from nystra.core.errors import NystraError
from nystra.export import Plan, mechanism
from nystra.export.attention.as_trained.parameters import AsTrained
from nystra.export.attention.registry import mechanism_class
from nystra.export.attention.site import resolve, swap
from nystra.export.load.images import validation_feeds
from nystra.export.options import ExportOptions
from nystra.export.pipeline import export_model
from nystra.models.loading import load
from nystra.runtime.session import Session
from vit_tools import SMALL, TOLD, tiny_checkpoint


def exported(checkpoint: Path, folder: Path, plan: Plan | None = None, **hyper: Any) -> Path:
    """Export and return the file, which passed with and without the library."""
    options = ExportOptions(plan or Plan(AsTrained()), hyper, speed=False)
    return export_model(checkpoint, folder, options).model


def agrees(path: Path, network: torch.nn.Module, sides: tuple[int, int]) -> None:
    """Check a file in plain onnxruntime at a batch that was neither traced nor validated."""
    plain = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    image = torch.rand(7, 3, *sides)
    with torch.no_grad():
        expected = network(image).numpy()
    (got,) = plain.run(None, {"input": image.numpy()})
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.full
def test_a_file_takes_any_batch(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path)
    path = exported(checkpoint, tmp_path, **TOLD)
    loaded = load(checkpoint, **TOLD)
    agrees(path, loaded.network, (8, 12))
    graph = onnx.load(path).graph
    dims = [
        [side.dim_param or side.dim_value for side in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    ]
    assert dims == [["batch", 3, 8, 12], ["batch", 5]]
    manifest = json.loads(path.with_suffix(".json").read_text())
    against = manifest["validation"]["against_torch"]
    assert against["passed"]
    assert "ort-cpu" in against["backends"]
    facts = Session(path).facts
    assert (facts.task, facts.architecture, facts.sides) == (
        "classification",
        "vit",
        {"height": 8, "width": 12},
    )
    assert main(["validate", str(path), "-q"]) == 0
    with pytest.raises(NystraError):
        Session(path)(np.zeros((1, 3, 12, 8), np.float32))


def test_three_batches_of_different_images_are_validated(tmp_path: Path) -> None:
    feeds = validation_feeds(load(tiny_checkpoint(tmp_path), **TOLD).facts)
    shapes = [case["input"].shape for case in feeds]
    assert shapes == [(batch, 3, 8, 12) for batch in (1, 2, 5)]
    first, second = feeds[1]["input"]
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("name", SMALL)
def test_every_mechanism_serves_the_sites(name: str, tmp_path: Path) -> None:
    """Plain and operator form agree and differ from full, also with a class token."""
    network = load(tiny_checkpoint(tmp_path), **TOLD).network
    resolved = resolve(Plan(mechanism(name, **SMALL[name])), network)
    assert {site.name for site in resolved.values()} == {name}
    image = torch.rand(2, 3, 8, 12)
    with torch.no_grad():
        plain = swap(network, resolved)(image)
        operator = swap(network, resolved, "operator")(image)
        exact = network(image)
    torch.testing.assert_close(operator, plain, atol=1e-4, rtol=0)
    assert not torch.allclose(plain, exact, atol=1e-4)


def test_landmarks_of_every_token_are_exact(tmp_path: Path) -> None:
    network = load(tiny_checkpoint(tmp_path), **TOLD).network
    every = mechanism("nystromformer", landmarks=(4, 6), iterations=8)
    image = torch.rand(1, 3, 8, 12).double()
    network = network.double()
    got = swap(network, resolve(Plan(every), network))(image)
    torch.testing.assert_close(got, network(image), atol=1e-2, rtol=0)


def test_linformer_needs_what_was_trained(tmp_path: Path) -> None:
    with pytest.raises(NystraError, match=r"\(E_K, E_V\), and encoder.blocks.0.attention has none"):
        exported(tiny_checkpoint(tmp_path), tmp_path, Plan(mechanism("linformer")), **TOLD)
    assert not list(tmp_path.glob("*.onnx"))


@pytest.mark.parametrize("name", ["linformer", "performer"])
def test_trained_with_a_mechanism_is_that_mechanism(name: str, tmp_path: Path) -> None:
    network = load(tiny_checkpoint(tmp_path, attention=name), **TOLD).network
    resolved = resolve(Plan(mechanism(name)), network)
    assert {type(site) for site in resolved.values()} == {mechanism_class(name)}
    image = torch.rand(1, 3, 8, 12)
    with torch.no_grad():
        expected = network(image)
        assert torch.equal(swap(network, resolved)(image), expected)
        exact = swap(network, resolve(Plan(mechanism("full")), network))(image)
    assert not torch.allclose(exact, expected, atol=1e-3)


def test_too_many_landmarks_for_the_grid(tmp_path: Path) -> None:
    network = load(tiny_checkpoint(tmp_path), **TOLD).network
    (site, *_) = resolve(Plan(mechanism("nystra", landmarks=(5, 6))), network).values()
    assert site.name == "full"
    assert site.reason == "more landmarks than rows or columns of the 4x6 grid of tokens"


@pytest.mark.full
@pytest.mark.parametrize("name", ["linformer", "performer", "nystromformer"])
def test_networks_export_as_trained(name: str, tmp_path: Path) -> None:
    told = TOLD | ({"num_landmarks": 6} if name == "nystromformer" else {})
    taps = {"conv_kernel_size": 3} if name == "nystromformer" else {}
    checkpoint = tiny_checkpoint(tmp_path, attention=name, depth=1, num_landmarks=6, **taps)
    path = exported(checkpoint, tmp_path, **told)
    agrees(path, load(checkpoint, **told).network, (8, 12))


@pytest.mark.full
@pytest.mark.parametrize("name", SMALL)
def test_mechanisms_export(name: str, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, depth=1)
    network, plan = load(checkpoint, **TOLD).network, Plan(mechanism(name, **SMALL[name]))
    path = exported(checkpoint, tmp_path, plan, **TOLD)
    agrees(path, swap(network, resolve(plan, network)), (8, 12))


@pytest.mark.full
def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = tiny_checkpoint(tmp_path, attention="linformer", depth=1)
    flags = ["--heads", "2", "--set", "image_size=[8,12]", "--resize-positions", "8x8"]
    command = [str(checkpoint), "-o", str(tmp_path / "small.onnx"), *flags, "--no-speed"]
    assert export_main(command) == 0
    assert "as_trained at 1 site" in capsys.readouterr().out
    assert Session(tmp_path / "small.onnx").facts.sides == {"height": 8, "width": 8}
