"""A mechanism is added with a folder and a row, and is then available everywhere."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import save_file

from nystra.cli.main import export_main, main
from nystra.export import Plan, mechanism, read_plan
from nystra.export.attention.site import resolve, swap
from nystra.models import load
from small_swinir import state_of
from toy_mechanism import PARAMETERS, SITES, added_mechanism


@pytest.fixture(scope="module", autouse=True)
def _toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("attention")
    with added_mechanism(folder, "toy", "Toy", parameters=PARAMETERS, sites=SITES):
        yield


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "tiny.safetensors"
    save_file(state_of(window_size=8), path)
    return path


def test_swapped_in(checkpoint: Path) -> None:
    network = load(checkpoint).network
    resolved = resolve(Plan(mechanism("toy", share=0.25)), network)
    assert {str(site) for site in resolved.values()} == {"toy share=0.25"}
    image = torch.rand(1, 3, 16, 24)
    plain, operator = (swap(network, resolved, form)(image) for form in ("plain", "operator"))
    assert torch.equal(plain, operator)
    assert not torch.allclose(plain, network(image), atol=1e-6)


@pytest.mark.full
def test_exported(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a file of standard operators, checked against PyTorch, with its plan.

    Of one size, which takes half the time; `test_contributing` exports it with free sides.
    """
    model = tmp_path / "toy.onnx"
    arguments = ["--attn", "toy", "--share", "0.25", "-o", str(model), "--no-speed", "--json"]
    arguments += ["--static", "1x3x16x16"]
    assert export_main([str(checkpoint), *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    planned = {"mechanism": "toy", "share": 0.25}
    assert list(report["sites"].values()) == [planned, planned]
    assert report["against_torch"]["passed"]
    assert any("position bias of 2 sites is dropped" in text for text in report["warnings"])
    assert {node.domain for node in onnx.load(str(model)).graph.node} == {""}
    plan = read_plan(model.with_suffix(".plan.json"))
    assert plan.default == mechanism("toy", share=0.25)
    assert set(plan.sites.values()) == {plan.default}
    assert np.isfinite(report["fidelity"]["mean"])


@pytest.mark.full
def test_inspected(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = "layers.0.residual_group.blocks.0.attn"
    arguments = ["--attn", "toy", "--share", "0.75", "--keep-full", first, "-q"]
    assert main(["inspect", str(checkpoint), *arguments]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("layers.")]
    assert "  full  " in rows[0]
    assert "  toy share=0.75  " in rows[1]
    assert main(["inspect", str(checkpoint), *arguments, "--sort", "loss"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("layers.")] == rows[::-1]
    assert f"largest error: {rows[1].split()[0]} (" in out
    assert "error: of the site's output under the plan" in out


def test_on_the_command_line(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export_main(["--help"]) == 0
    usage = " ".join(capsys.readouterr().out.split())
    assert "toy: every token gets a share of the mean" in usage
    assert "--share N how much of the mean a token gets, 0 to 1 (default: 0.5)" in usage
    for arguments, message in (
        (["--attn", "toy", "--share", "2"], "--share is 2.0, expected a number from 0 to 1"),
        (["--share", "0.5"], "--share does not apply to --attn full: it is for --attn toy"),
        (["--attn", "toy", "--landmarks", "16"], "--landmarks does not apply to --attn toy"),
    ):
        assert export_main([str(checkpoint), *arguments]) == 2
        assert message in capsys.readouterr().err
