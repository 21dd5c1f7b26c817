"""What ``--attn auto`` prints during its search and about its result."""

import re
from pathlib import Path
from typing import Any

import pytest

from auto_costs import table
from nystra.cli.main import export_main
from nystra.export import ExportOptions
from nystra.export.auto.trials import Trials
from nystra.export.auto_options import AutoOptions
from nystra.export.load.stage import prepare
from nystra.export.plan.stage import Planned, make_plan
from nystra.runtime.images.image_data import ImageData
from nystra.runtime.images.images import write_image
from small_swinir import four_sites

FASTER = {"nystra": 1.0, "nystromformer landmarks=2x4": 0.5}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return four_sites(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small images."""
    import numpy as np

    place = tmp_path_factory.mktemp("images")
    for name in "ab":
        pixels = np.random.default_rng(ord(name)).random((20, 24, 3), np.float32)
        write_image(place / f"{name}.png", ImageData(pixels), overwrite=False)
    return place


def searched(
    checkpoint: Path, folder: Path, place: Path, seconds: dict[str, float], **more: Any
) -> tuple[Planned, list[str]]:
    """Return the plan of a search with given times, and its output."""
    costs = table(checkpoint, place / "costs.json", seconds)
    options = ExportOptions(AutoOptions(costs, **more), calibrate=folder, min_psnr=50.0)
    said: list[str] = []
    return make_plan(prepare(checkpoint, options, lambda _: None), place, said.append), said


@pytest.mark.full
def test_every_run_is_announced(checkpoint: Path, folder: Path, tmp_path: Path) -> None:
    planned, said = searched(checkpoint, folder, tmp_path, FASTER)
    assert said[1:] == ["1/2 try nystra", "2/2 try nystromformer landmarks=2x4"]
    assert planned.proposal.figures["verified"] == 3, "and as trained"


@pytest.mark.full
def test_where_nothing_gains_nothing_is_tried_on_images(
    checkpoint: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a network ran on images")

    monkeypatch.setattr(Trials, "changes", refused)
    planned, said = searched(checkpoint, folder, tmp_path, {"nystra": 3.9})
    assert planned.is_neutral
    assert said == ["time the attention of 15 plans"]
    (warning,) = planned.warnings
    assert "none was tried on images" in warning


@pytest.mark.full
def test_a_gain_of_a_tenth_is_tried(checkpoint: Path, folder: Path, tmp_path: Path) -> None:
    planned, _ = searched(checkpoint, folder, tmp_path, {"nystra": 3.6})
    assert planned.proposal.figures["verified"] > 1


@pytest.mark.full
def test_the_figure_of_speed_is_of_attention_alone(
    checkpoint: Path, folder: Path, tmp_path: Path
) -> None:
    planned, _ = searched(checkpoint, folder, tmp_path, FASTER)
    assert re.search(
        r"attention alone \d\.\d\dx as fast as trained \(128x128, in PyTorch\)",
        planned.proposal.summary,
    )
    assert "network" not in planned.proposal.summary


@pytest.mark.full
def test_the_page_has_the_plans(
    checkpoint: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = table(checkpoint, tmp_path / "costs.json", FASTER, static=(1, 3, 16, 16))
    pages = tmp_path / "pages"
    command = [str(checkpoint), "-o", str(tmp_path / "m.onnx"), "--attn", "auto", "--no-speed"]
    command += ["--costs", str(costs), "--calibrate", str(folder), "--report", str(pages)]
    assert export_main([*command, "--static", "1x3x16x16", "--min-psnr", "20"]) == 0
    assert f"report: {pages / 'm.export.html'}\n" in capsys.readouterr().out
    (page,) = pages.iterdir()
    text = page.read_text()
    assert "<h2>Plans</h2>" in text
    for plan in ("chosen", "nystra everywhere", "nystromformer landmarks=2x4 everywhere"):
        assert f"<td>{plan}</td>" in text
    assert "with it everywhere" in text


@pytest.mark.full
def test_for_a_gpu_small_windows_stay_exact(checkpoint: Path, folder: Path, tmp_path: Path) -> None:
    plans = {}
    for target, precision in ((None, "fp32"), ("tensorrt", "bf16")):
        more: dict[str, Any] = {"target": target, "precision": precision}
        costs = table(checkpoint, tmp_path / f"{target}.json", FASTER, **more)
        options = ExportOptions(AutoOptions(costs), calibrate=folder, min_psnr=20.0, **more)
        planned = make_plan(prepare(checkpoint, options, lambda _: None), tmp_path, lambda _: None)
        plans[target] = str(dict(planned.plan.sites)), " ".join(planned.warnings)
    assert "Nystr" in plans[None][0], plans
    assert "Nystr" not in plans["tensorrt"][0], plans
    assert "for a GPU, where windows are large enough" in plans["tensorrt"][1]
