"""``--attn auto`` with given costs, so that every run chooses the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from auto_costs import table
from nystra.cli.main import export_main, main
from nystra.core.errors import NystraError
from nystra.core.json_text import stable_json
from nystra.core.ports.port import Port
from nystra.export import ExportOptions, Mechanism
from nystra.export.attention.candidates import candidates
from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.plan import read_plan
from nystra.export.attention.site import Site, find_sites
from nystra.export.auto import trials
from nystra.export.auto.search import site_plans
from nystra.export.auto.trials import Trials
from nystra.export.auto_options import AutoOptions
from nystra.export.load import samples as images
from nystra.export.load.samples import choose_samples
from nystra.export.load.stage import prepare
from nystra.export.plan.replacing import export_form, refuse_to_replace
from nystra.export.plan.stage import Planned, make_plan
from nystra.models import load
from nystra.models.geometry import WindowGeometry
from nystra.models.sites import WindowSite
from nystra.runtime.images.image_data import ImageData
from nystra.runtime.images.images import write_image
from nystra.runtime.model.manifest import Manifest
from small_swinir import four_sites

FASTER = {"nystra": 1.0, "nystromformer landmarks=2x4": 0.5}
TABLE = '{{"schema_version": 2, "network": "", "machine": {}, "seconds": {}}}'
SITES = [
    f"layers.{group}.residual_group.blocks.{block}.attn" for group in (0, 1) for block in (0, 1)
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return four_sites(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def costs(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Costs for which two candidates are faster than full attention."""
    return table(checkpoint, tmp_path_factory.mktemp("costs") / "costs.json", FASTER)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three small images."""
    place = tmp_path_factory.mktemp("images")
    for index, name in enumerate("abc"):
        make_image(place / f"{name}.png", 20 + index, 24)
    return place


def auto(checkpoint: Path, output: Path, *more: str) -> int:
    """Export without slow steps."""
    fixed = ["-o", str(output), "--attn", "auto", "--no-speed", "-q"]
    return export_main([str(checkpoint), *fixed, *more])


def proposed(
    checkpoint: Path, output: Path, folder: Path, planner: AutoOptions, minimum: float = 45.0
) -> Planned:
    """Return the plan of an export that stops there."""
    options = ExportOptions(planner, calibrate=folder, min_psnr=minimum)
    return make_plan(prepare(checkpoint, options, lambda _: None), output, lambda _: None)


@pytest.fixture(scope="module")
def exported(
    checkpoint: Path, costs: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    output = tmp_path_factory.mktemp("exported") / "m.onnx"
    more = ("--costs", str(costs), "--min-psnr", "45", "--calibrate", str(folder))
    assert auto(checkpoint, output, *more) == 0
    return output


@pytest.mark.full
def test_the_plan_keeps_the_budget_and_says_why(exported: Path) -> None:
    document = json.loads(exported.with_suffix(".plan.json").read_text())
    assert list(document["sites"]) == SITES
    for site in document["sites"].values():
        assert re.match(
            r"\d+\.\d dB with it everywhere, attention in \d+ of 4e\+03 ms", site["reason"]
        )
    (name,) = {site["mechanism"] for site in document["sites"].values()}
    assert name in ("nystra", "nystromformer")
    assert read_plan(exported.with_suffix(".plan.json")).sites.keys() == document["sites"].keys()
    manifest = Manifest.read(Manifest.path_for(exported))
    planning, fidelity = manifest.validation["planning"], manifest.validation["fidelity"]
    assert planning["held_out"] == ["c.png"]
    chosen = planning["plans"].pop("chosen")
    assert min(chosen["psnr_seen"], chosen["psnr_held_out"]) >= 45.0
    assert fidelity["mean"] >= 45.0
    assert list(fidelity["plan"]) == ["a.png 1/1", "b.png 1/1", "c.png 1/1"]
    for plan in planning["plans"].values():
        kept = min(plan["psnr_seen"], plan["psnr_held_out"]) >= 45.0
        assert not kept or plan["attention_seconds"] >= chosen["attention_seconds"]


@pytest.mark.full
def test_the_same_costs_give_the_same_plan(
    checkpoint: Path, costs: Path, folder: Path, exported: Path, tmp_path: Path
) -> None:
    planned = proposed(checkpoint, tmp_path / "m.onnx", folder, AutoOptions(costs))
    written = exported.with_suffix(".plan.json").read_bytes()
    assert stable_json(planned.plan.as_dict()) == written
    refuse_to_replace(exported, planned.plan, export_form(ExportOptions()))
    given = read_plan(exported.with_suffix(".plan.json"))  # which has read no reasons
    refuse_to_replace(exported, given, export_form(ExportOptions()))


@pytest.mark.full
def test_what_was_measured_is_not_measured_again(
    checkpoint: Path, costs: Path, folder: Path, exported: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An interrupted search continues; another limit reuses everything; other images nothing."""
    runs = []
    measured = Trials._measure

    def counted(self: Trials, plan: Mapping[str, Mechanism]) -> dict[str, float]:
        runs.append(plan)
        if len(runs) == 2:
            raise KeyboardInterrupt
        return measured(self, plan)

    monkeypatch.setattr(Trials, "_measure", counted)
    output, planner = tmp_path / "m.onnx", AutoOptions(costs)
    with pytest.raises(KeyboardInterrupt):
        proposed(checkpoint, output, folder, planner)
    planned = proposed(checkpoint, output, folder, planner)
    assert planned.plan.sites == read_plan(exported.with_suffix(".plan.json")).sites
    assert len(runs) - 1 == planned.proposal.figures["verified"] - 1, "all but as trained, once"
    before = len(runs)
    proposed(checkpoint, output, folder, planner, 49.0)
    proposed(checkpoint, output, folder, planner)
    assert len(runs) == before, "another limit needs no run"
    (tmp_path / "images").mkdir()
    make_image(tmp_path / "images/d.png", 20, 24)
    make_image(tmp_path / "images/e.png", 21, 24)
    proposed(checkpoint, output, tmp_path / "images", planner)
    assert len(runs) == 2 * before - 1


def test_only_full_attention_keeps_the_budget(
    checkpoint: Path, costs: Path, folder: Path, tmp_path: Path
) -> None:
    planned = proposed(checkpoint, tmp_path, folder, AutoOptions(costs), 250.0)
    assert planned.is_neutral
    assert planned.proposal.summary == "no faster plan reaches 250 dB"
    (warning,) = planned.warnings
    assert "no plan that was tried reaches 250 dB; nystr" in warning
    assert {site.reason for site in planned.resolved.values()} == {"as trained"}


def test_a_budget_that_everything_keeps(checkpoint: Path, folder: Path, tmp_path: Path) -> None:
    kept = (SITES[1],)
    costs = table(checkpoint, tmp_path / "costs.json", FASTER, kept)
    planned = proposed(checkpoint, tmp_path, folder, AutoOptions(costs, kept), 1.0)
    names = [str(site) for site in planned.resolved.values()]
    fastest = "nystromformer landmarks=2x4"
    assert names == [fastest, "full", fastest, fastest]


def test_nothing_is_faster(checkpoint: Path, folder: Path, tmp_path: Path) -> None:
    costs = table(checkpoint, tmp_path / "costs.json", {"nystra": 3.9})
    planned = proposed(checkpoint, tmp_path, folder, AutoOptions(costs))
    assert planned.is_neutral
    (warning,) = planned.warnings
    assert "no candidate is 1.1 times as fast as trained on this machine" in warning
    assert planned.proposal.summary == "no plan is faster"


@pytest.mark.full
def test_costs_are_measured_written_and_remembered(
    checkpoint: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "SECONDS", 0.0)
    path, said = tmp_path / "costs.json", list[str]()
    options = ExportOptions(AutoOptions(path), calibrate=folder)
    make_plan(prepare(checkpoint, options, lambda _: None), tmp_path, said.append)
    document = json.loads(path.read_text())
    assert {"as trained", "nystra", "psal"} <= set(document["seconds"])
    assert all(0 < seconds < 60 for seconds in document["seconds"].values())
    assert said[0] == "time the attention of 15 plans"
    monkeypatch.setattr(Trials, "time", lambda *_: pytest.fail("timed again"))
    again = tmp_path / "again.json"
    proposed(checkpoint, tmp_path, folder, AutoOptions(again))
    assert again.read_bytes() == path.read_bytes()


def test_blocks_of_a_whole_window_are_no_candidates() -> None:
    """They are exact attention in more operations; timings of a busy machine have chosen them."""
    module = WindowSite(WindowGeometry(2, 5, 5, (8, 8), (0, 0), True, 0.4))
    served = candidates(Site("", module)).values()
    clusters = [row for row in served if isinstance(row, Cluster)]
    assert {row.block for row in clusters} == {4}


def test_a_plan_has_windows_of_both_orientations(checkpoint: Path) -> None:
    """One candidate has its parameters in each: 64 clusters are 10x6 and 6x10."""
    network = nn.Module()
    network.down = WindowSite(WindowGeometry(1, 8, 8, (24, 6), (0, 0), False, 0.4))
    network.along = WindowSite(WindowGeometry(1, 8, 8, (6, 24), (0, 0), False, 0.4))
    prepared = prepare(checkpoint, ExportOptions(), lambda _: None)
    loaded = replace(prepared.loaded, network=network)
    plans = site_plans(replace(prepared, loaded=loaded), ())
    sites = plans["cluster clusters=8x8 block=8"]
    assert {path: site.clusters for path, site in sites.items() if isinstance(site, Cluster)} == {
        "down": (10, 6),
        "along": (6, 10),
    }


@pytest.mark.full
def test_a_large_network_has_part_of_the_candidates(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(checkpoint)
    monkeypatch.setattr(images, "count_all_operations", lambda *_: 1)
    efforts = []
    for most in (*np.geomspace(1e6, 1e-3, 40), 0):
        monkeypatch.setattr(images, "MAX_OPERATIONS", most)
        chosen = choose_samples(loaded, None)
        efforts.append((len(chosen.seen), len(chosen.held_out), chosen.coarse))
    fewer = [(8, 4, False), (2, 1, False), (2, 1, True), (1, 1, True)]
    assert list(dict.fromkeys(efforts)) == fewer
    (site, *_) = find_sites(loaded.network)
    every = candidates(site)
    assert {str(mechanism) for mechanism in candidates(site, coarse=True)} < {
        str(mechanism) for mechanism in every
    }
    logits = replace(loaded.facts, outputs=(Port("output", "logits"),))
    with pytest.raises(NystraError, match=r"auto is for images and frames: .* relative_error"):
        choose_samples(replace(loaded, facts=logits), None)


@pytest.mark.full
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is [], expected an object of schema_version 2"),
        ('{"schema_version": 2}', "missing keys ['machine', 'network', 'seconds']"),
        ('{"schema_version": 1, "machine": {}, "seconds": {}}', "schema_version 1"),
        (TABLE.format('""', "{}"), "are of another network, of other sites to keep"),
        (TABLE.format('""', '{"full": -1}'), "above 0"),
        (TABLE.format('""', "[]"), "above 0"),
        (TABLE.format('"", "rest": {}', "{}"), "unknown keys ['rest']"),
    ],
)
def test_costs_that_are_none(
    checkpoint: Path, tmp_path: Path, content: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text(content)
    assert auto(checkpoint, tmp_path / "m.onnx", "--costs", str(costs)) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [costs]


@pytest.mark.full
def test_costs_of_another_machine_or_without_a_plan(
    checkpoint: Path, costs: Path, folder: Path, tmp_path: Path
) -> None:
    document = json.loads(costs.read_text())
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(document | {"machine": "an abacus"}))
    planned = proposed(checkpoint, tmp_path, folder, AutoOptions(path))
    assert any("measured elsewhere (an abacus; here " in text for text in planned.warnings)
    del document["seconds"]["psal"]
    path.write_text(json.dumps(document))
    with pytest.raises(NystraError, match=r"another version of nystra: give the name of a new"):
        proposed(checkpoint, tmp_path, folder, AutoOptions(path))
    with pytest.raises(NystraError, match=r"are of another network, of other sites to keep"):
        proposed(checkpoint, tmp_path, folder, AutoOptions(costs, (SITES[0],)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attn", "auto", "--landmarks", "16"], "--landmarks does not apply to --attn auto"),
        (["--attn", "auto", "--plan", "a.json"], "--plan and --attn contradict each other"),
        (["--attn", "auto", "--min-psnr", "nan"], "--min-psnr is nan, expected a number above 0"),
        (["--attn", "auto", "--keep-full", "no.site"], "first 'no.site'"),
        (["--costs", "a.json"], "--costs is for --attn auto"),
    ],
)
def test_flags_that_contradict_each_other(
    checkpoint: Path, tmp_path: Path, arguments: list[str], words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert export_main([str(checkpoint), "-o", str(tmp_path), "-q", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_inspect_takes_the_plan_that_was_found(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(checkpoint), "--attn", "auto"]) == 2
    assert "give that file with --plan" in capsys.readouterr().err


def make_image(path: Path, height: int, width: int) -> None:
    rows, columns = np.mgrid[:height, :width]
    plane = (rows * columns % 17) / 17
    pixels = np.repeat(plane[:, :, None], 3, axis=2).astype(np.float32)
    write_image(path, ImageData(pixels))


@pytest.mark.full
def test_images_are_held_out(checkpoint: Path, tmp_path: Path) -> None:
    loaded = load(checkpoint)
    make_image(tmp_path / "a.png", 70, 64)
    single = choose_samples(loaded, tmp_path)
    assert list(single.samples) == ["a.png 1/2", "a.png 2/2"]
    assert (single.held_out, single.held_out_images) == (("a.png 2/2",), ("a.png",))
    for name in "bcdef":
        make_image(tmp_path / f"{name}.png", 16, 20)
    several = choose_samples(loaded, tmp_path)
    assert several.held_out_images == ("c.png", "f.png")
    assert list(several.seen) == ["a.png 1/2", "a.png 2/2", "b.png 1/1", "d.png 1/1", "e.png 1/1"]
    make_image(tmp_path / "g.png", 7, 64)
    with pytest.raises(NystraError, match=r"g\.png is 7x64, smaller than a window of the network"):
        choose_samples(loaded, tmp_path)
