"""Settings of ``cluster`` that are not given are chosen by their errors on images."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from nystra.cli.main import export_main
from nystra.core.ports.port import Port
from nystra.export.attention.advice import plan_warnings
from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.plan import Plan
from nystra.export.attention.site import neutral, resolve, swap
from nystra.export.plan.settings import Settings, choose_settings
from nystra.models import load
from nystra.models.geometry import TokenGeometry, WindowGeometry
from nystra.models.sites import WindowSite
from small_swinir import state_of

OUTPUT = Port("output", "picture")
SIDE = 16


class Attention(WindowSite):
    """Attention of a map in windows of 16, with logits of a given size."""

    def __init__(self, sharpness: float, shift: int) -> None:
        super().__init__(WindowGeometry(1, 8, 8, (SIDE, SIDE), (shift, shift), True, sharpness))
        self.project = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attend(self.project(x))


class Two(nn.Module):
    """A smooth attention, and a sharp one in shifted windows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Conv2d(3, 8, 3, padding=1)
        self.smooth, self.sharp = Attention(0.02, 0), Attention(4.0, SIDE // 2)
        self.tail = nn.Linear(8, 3)

    def forward(self, image: Tensor) -> Tensor:
        x = self.sharp(self.smooth(self.head(image).permute(0, 2, 3, 1)))
        return image + 0.1 * self.tail(x).permute(0, 3, 1, 2)


def samples(count: int = 2) -> dict[str, dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    return {
        f"image {number}": {"input": random.random((1, 3, 32, 32), np.float32)}
        for number in range(count)
    }


def chosen(plan: Plan, limit: float | None = None, output: Port = OUTPUT) -> Settings:
    network = Two().eval()
    return choose_settings(network, output, plan, resolve(plan, network), samples(), limit)


def change_by(sites: dict[str, Mechanism]) -> float:
    """The mean squared change of the clipped output, in dB, computed here."""
    network, squares = Two().eval(), []
    exact, planned = (swap(network, each).eval() for each in (neutral(network), sites))
    for feeds in samples().values():
        image = torch.from_numpy(feeds["input"])
        with torch.inference_mode():
            difference = exact(image).clamp(0, 1) - planned(image).clamp(0, 1)
        squares.append(float((difference.double() ** 2).mean()))
    return -10.0 * float(np.log10(np.mean(squares)))


def usual() -> dict[str, Mechanism]:
    return resolve(Plan(Cluster()), Two())


def test_sharp_attention_has_finer_settings() -> None:
    before = change_by(usual())
    settings = chosen(Plan(Cluster()), before + 3.0)
    assert settings.sites["smooth"] == usual()["smooth"]
    assert settings.sites["sharp"] != usual()["sharp"]
    after = change_by(settings.sites)
    assert after >= before + 3.0
    assert settings.figures["psnr"] == pytest.approx(after, abs=0.01)
    assert settings.figures["usual_psnr"] == pytest.approx(before, abs=0.01)
    text = f"{after:.1f} dB against exact attention on 2 images, {before + 3.0:g} wanted; the usual"
    assert text in settings.summary
    assert str(settings.sites["sharp"]).removeprefix("cluster ") in settings.summary


def test_a_choice_is_repeatable_and_finer_for_a_higher_limit() -> None:
    before = change_by(usual())
    near, far = (chosen(Plan(Cluster()), before + more) for more in (1.0, 19.0))
    assert near == chosen(Plan(Cluster()), before + 1.0)
    assert change_by(far.sites) > change_by(near.sites)
    assert far.sites["sharp"].operations(8, 8) > near.sites["sharp"].operations(8, 8)


def test_a_limit_just_above_the_usual_settings_is_kept() -> None:
    """What both classes change together is not the sum of what each does."""
    limit = change_by(usual()) + 0.05
    assert change_by(chosen(Plan(Cluster()), limit).sites) >= limit


def test_usual_settings_that_are_sufficient_stay() -> None:
    plan = Plan(Cluster(block=4))
    expected = resolve(plan, Two())
    settings = chosen(plan, change_by(expected) - 1.0)
    assert settings.sites == expected
    assert "the usual ones: " in settings.summary


@pytest.mark.parametrize(
    "given",
    [{"clusters": (2, 2)}, {"block": 4}, {"rounds": 1}, {"order": 0}, {"order": 1},
     {"clusters": (2, 4), "order": 1}],
)  # fmt: skip
def test_given_parameters_are_kept(given: dict[str, Any]) -> None:
    for mechanism in chosen(Plan(Cluster(**given)), 99.0).sites.values():
        values = mechanism.values()
        assert {name: values[name] for name in given} == given
        assert None not in values.values()


def test_exact_attention_stays_where_no_setting_keeps_the_limit() -> None:
    settings = chosen(Plan(Cluster()), change_by({**usual(), "sharp": Full()}) - 1.0)
    assert isinstance(settings.sites["smooth"], Cluster)
    assert isinstance(settings.sites["sharp"], Full)
    found = re.search(r"`min_psnr` (\d+) takes them everywhere", settings.sites["sharp"].reason)
    assert found
    lower = chosen(Plan(Cluster()), float(found[1]))
    assert lower.figures["exact"] == []
    assert lower.figures["psnr"] >= float(found[1])
    assert settings.figures["exact"] == ["sharp"]
    assert "exact attention at 1 site" in settings.summary


def test_attention_that_does_not_reach_the_output_has_settings() -> None:
    network = Two().eval()
    network.tail.weight.data.zero_()
    plan = Plan(Cluster())
    settings = choose_settings(network, OUTPUT, plan, resolve(plan, network), samples())
    assert all(isinstance(site, Cluster) for site in settings.sites.values())
    assert settings.figures["exact"] == []


def test_nothing_is_chosen_where_all_is_given_or_exact() -> None:
    every = Plan(Cluster((4, 4), 4))
    assert chosen(every, 99.0) == Settings(resolve(every, Two()))
    exact = Plan(Full())
    assert chosen(exact, 99.0) == Settings(resolve(exact, Two()))
    one = chosen(Plan(Full(), {"smooth": Cluster()}), 99.0)
    assert one.sites["sharp"] == Full()
    assert len(one.figures["classes"]) == 1


def test_outputs_that_are_no_images_keep_the_usual_settings() -> None:
    settings = chosen(Plan(Cluster()), output=Port("output", "logits"))
    assert settings.sites == usual()
    assert settings.summary.startswith("usual settings: outputs are compared by ")


def test_lists_of_tokens_have_settings_too() -> None:
    place = TokenGeometry((16, 16), (16, 16), 1.0)
    settings = Cluster().settings(place)
    assert settings[0] == Cluster().at(place)
    assert len(settings) > 5
    assert len(Cluster().settings(None)) > 5


def test_settings_of_lists_state_the_clusters_that_they_have() -> None:
    """Lists of windows of 3x48 were said to have 8x8 clusters, and have 3 rows of 21."""
    place = TokenGeometry((3, 48), (3, 48), 1.0)
    assert Cluster((8, 8)).at(place).clusters == (3, 21)
    assert Cluster().at(TokenGeometry((1, 40), (1, 40), 1.0)).clusters == (1, 16)


def test_the_largest_blocks_that_no_border_cuts_are_tried() -> None:
    cut = WindowGeometry(1, 8, 8, (12, 12), (6, 6), True, 1.0)
    blocks = {each.block for each in Cluster().settings(cut)}
    assert blocks == {3, 6}


def test_blocks_of_a_whole_window_are_not_tried() -> None:
    """They are exact attention, and were chosen as settings that take half of its operations."""
    whole = WindowGeometry(1, 8, 8, (8, 8), (0, 0), True, 1.0)
    assert {setting.block for setting in Cluster().settings(whole)} == {4}


def test_only_given_settings_are_said_not_to_be_faster() -> None:
    loaded, fine = load("swinir_x2_w16"), Cluster((8, 8), 8, 0, 0)
    sites = dict.fromkeys(neutral(loaded.network), fine)
    assert "linear attention cannot be faster" in plan_warnings(Plan(fine), loaded, sites)[0]
    assert not plan_warnings(Plan(Cluster()), loaded, sites)


def test_a_site_whose_nodes_stay_is_reported_once() -> None:
    loaded = load("swinir_x2_w16")
    sites = dict.fromkeys(neutral(loaded.network), Full(reason="it is faster"))
    (text,) = plan_warnings(Plan(Cluster()), loaded, sites)
    assert text.endswith("with full attention: it is faster")
    assert not plan_warnings(Plan(Cluster()), loaded, sites, sites)


@pytest.mark.full
def test_an_export_says_and_records_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file(state_of(window_size=16), tmp_path / "tiny.safetensors")
    model = tmp_path / "tiny.onnx"
    fixed = [str(tmp_path / "tiny.safetensors"), "--no-speed", "-o", str(model), "--window", "16"]
    assert export_main([*fixed, "--attn", "cluster", "--min-psnr", "20"]) == 0
    told = capsys.readouterr()
    line = next(line for line in told.out.splitlines() if line.startswith("settings"))
    assert "20 wanted" in line
    assert "with full attention" not in told.err
    manifest = json.loads(model.with_suffix(".json").read_text())
    recorded = manifest["validation"]["settings"]
    assert recorded["wanted"] == 20
    paths = [path for group in recorded["classes"] for path in group["sites"]]
    assert sorted(paths) == sorted(manifest["plan"]["sites"])
    assert all(None not in site.values() for site in manifest["plan"]["sites"].values())
