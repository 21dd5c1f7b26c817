"""What ``--attn auto`` prints during its search and about its result."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nystra.cli.main import export_main
from nystra.export import ExportOptions
from nystra.export.attention.candidates import candidates
from nystra.export.attention.site import find_sites
from nystra.export.auto.costs import CostTable
from nystra.export.auto.eta import Eta
from nystra.export.auto.figures import pareto_figure
from nystra.export.auto.replay import Replay
from nystra.export.auto.result import AutoResult
from nystra.export.auto.timing import record_calls
from nystra.export.auto.verification import Verifier
from nystra.export.auto_options import AutoOptions
from nystra.export.load.stage import prepare
from nystra.export.plan.stage import Planned, make_plan
from nystra.export.report.auto_page import write_report
from nystra.models import load
from nystra.runtime.images.image_data import ImageData
from nystra.runtime.images.images import write_image
from small_swinir import four_sites

FASTER = {"nystra": 1.0, "nystromformer landmarks=2x4": 0.5}


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


def costs_of(
    checkpoint: Path,
    path: Path,
    seconds: dict[str, float],
    shape: tuple[int, ...] | None = None,
) -> Path:
    """Write a table in which candidates have these times at a site, and all others 4."""
    loaded = load(checkpoint)
    facts = loaded.facts if shape is None else loaded.facts.fixed(shape)
    calls, table = record_calls(loaded.network, facts), CostTable()
    for site in find_sites(loaded.network):
        for call in calls.of[site.path]:
            table.seconds[call] = {
                str(mechanism): seconds.get(str(mechanism), 4.0) for mechanism in candidates(site)
            }
    table.write(path)
    return path


def searched(
    checkpoint: Path, folder: Path, place: Path, seconds: dict[str, float], **more: Any
) -> tuple[Planned, list[str]]:
    """Return the plan of a search with given times, and its output."""
    costs = costs_of(checkpoint, place / "costs.json", seconds)
    options = ExportOptions(AutoOptions(costs, **more), calibrate=folder, min_psnr=52.0)
    said: list[str] = []
    return make_plan(prepare(checkpoint, options, lambda _: None), place, said.append), said


def test_the_verification_is_part_of_what_is_counted(
    checkpoint: Path, folder: Path, tmp_path: Path
) -> None:
    _, said = searched(checkpoint, folder, tmp_path, FASTER)
    counted = [re.match(r"(\d+)/100 (\w+ ?\w*)(.*)", text) for text in said]
    steps = [(int(m[1]), m[2], m[3]) for m in counted if m is not None]
    first = {what: percent for percent, what, _ in reversed(steps)}
    assert first["verify plan"] < 50, "there is most of the way to go"
    assert all(percent < 100 for percent, *_ in steps), said
    assert sum("second pass: layers" in text for text in said) >= 2, "site by site"
    assert all(" left" in rest for _, what, rest in steps if what == "verify plan")


def test_time_left_counts_what_is_to_come() -> None:
    said: list[str] = []
    eta = Eta(said.append)
    eta.left = 8.0
    eta.announce("begin")
    eta.done(2.0)
    eta.announce("go on")
    eta.left = 100.0
    eta.announce("there is more")
    assert said[0] == "1/100 begin"
    assert said[1].startswith("26/100 go on, about 0 s left")
    assert said[2].startswith("2/100 there is more")


def test_where_nothing_gains_nothing_is_tried_on_images(
    checkpoint: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a network ran on images")

    monkeypatch.setattr(Replay, "__init__", refused)
    monkeypatch.setattr(Verifier, "__init__", refused)
    pytest.importorskip("matplotlib", reason="nystra[report] is not installed")
    report = partial(write_report, folder=tmp_path / "pages")
    planned, said = searched(checkpoint, folder, tmp_path, {"nystra": 3.9}, report=report)
    assert planned.is_neutral
    assert said[-2].startswith("no candidate is 1.1 times as fast as trained"), said
    (warning,) = planned.warnings
    assert "none was tried on images" in warning
    assert "none was tried on images" in (tmp_path / "pages" / "tiny.auto.html").read_text()


def test_a_gain_of_a_tenth_is_tried(checkpoint: Path, folder: Path, tmp_path: Path) -> None:
    planned, _ = searched(checkpoint, folder, tmp_path, {"nystra": 3.6})
    assert planned.proposal.figures["verified"] > 1


def test_the_figure_of_speed_is_of_attention_alone(
    checkpoint: Path, folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="nystra[report] is not installed")
    results: list[AutoResult] = []
    planned, _ = searched(checkpoint, folder, tmp_path, FASTER, report=results.append)
    assert re.search(
        r"attention alone \d\.\d\dx as fast as trained \(128x128, in PyTorch\)",
        planned.proposal.summary,
    )
    assert "network" not in planned.proposal.summary
    (axes,) = pareto_figure(results[0]).axes
    assert axes.get_xlabel() == "time of attention alone at 128x128, ms"
    assert axes.get_xlim()[0] == 0, "a gain has its true length"


@pytest.mark.full
def test_both_pages_are_named(
    checkpoint: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="nystra[report] is not installed")
    costs = costs_of(checkpoint, tmp_path / "costs.json", {}, (1, 3, 16, 16))
    pages = tmp_path / "pages"
    command = [str(checkpoint), "-o", str(tmp_path / "m.onnx"), "--attn", "auto", "--no-speed"]
    command += ["--costs", str(costs), "--calibrate", str(folder), "--report", str(pages)]
    assert export_main([*command, "--static", "1x3x16x16"]) == 0
    named = re.search(r"^report: (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert named is not None
    paths = [Path(text) for text in named[1].split(", ")]
    assert paths == [pages / "tiny.auto.html", pages / "m.export.html"]
    assert all(path.is_file() for path in paths)


def test_for_a_gpu_small_windows_stay_exact(checkpoint: Path, folder: Path, tmp_path: Path) -> None:
    costs = costs_of(checkpoint, tmp_path / "costs.json", FASTER)
    plans = {}
    for target, precision in ((None, "fp32"), ("tensorrt", "bf16")):
        options = ExportOptions(
            AutoOptions(costs), calibrate=folder, min_psnr=20.0, target=target, precision=precision
        )
        prepared = prepare(checkpoint, options, lambda _: None)
        said: list[str] = []
        planned = make_plan(prepared, tmp_path, said.append)
        plans[target] = str(dict(planned.plan.sites)), " ".join(said)
    assert "Nystr" in plans[None][0], plans
    assert "Nystr" not in plans["tensorrt"][0], plans
    assert "the file is for a GPU" in plans["tensorrt"][1]
