"""The checkpoints that ship: small, complete, and as good as their cards say."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from image_files import rgb
from nystra.models import load
from nystra.models.pretrained import pretrained_path
from shared import ROOT, shared_path
from studies.training.classifying import Classifying
from studies.training.denoising import with_noise

SHIPPED = sorted(file.stem for file in pretrained_path().parent.glob("*.safetensors"))


def card_figure(card: str, row: str) -> str:
    match = re.search(rf"^\| {re.escape(row)} \| ([\d.,]+)", card, re.MULTILINE)
    assert match, f"no row {row!r} in the model card"
    return match[1]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_files_are_small_and_tell_their_arguments(name: str) -> None:
    path = pretrained_path(name)
    assert path.stat().st_size <= 1_500_000
    loaded = load(name)
    hyper = dict(loaded.checkpoint.hyper)
    assert hyper.pop("architecture") == loaded.facts.architecture
    assert hyper.pop("license") == "Apache-2.0"
    assert bool(hyper.pop("preprocessing", None)) == (loaded.facts.preprocessing is not None)
    assert hyper.items() <= loaded.hyper.items()
    assert loaded.warnings == ()
    card = path.with_suffix(".md").read_text(encoding="utf-8")
    parameters = sum(parameter.numel() for parameter in loaded.network.parameters())
    assert card_figure(card, "parameters") == f"{parameters:,}"
    assert f"{path.stat().st_size:,} bytes" in card
    assert loaded.checkpoint.sha256 in card


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("swinir_x2_w16", marks=pytest.mark.full),
        pytest.param("swinir_x2_w32_nobias", marks=pytest.mark.release),
        pytest.param("hat_x2_w16", marks=pytest.mark.release),
        pytest.param("sst_x2_w64", marks=pytest.mark.release),
    ],
)
def test_the_shipped_files_reach_the_figure_of_their_card(name: str) -> None:
    """Set5, twice as large, luma, border 2: the figure in the card, and never below 35 dB."""
    figures = []
    for file in sorted(shared_path("data", "set5", "HR").glob("*.png")):
        (small,) = shared_path("data", "set5", "LR_bicubic", "X2").glob(f"{file.stem}*")
        restored = restore(name, rgb(small))
        error = (restored - rgb(file)) @ np.array([65.481, 128.553, 24.966]) / 255
        figures.append(10 * np.log10(255**2 / np.mean(error[2:-2, 2:-2] ** 2)))
    card = pretrained_path(name).with_suffix(".md").read_text(encoding="utf-8")
    assert np.mean(figures) == pytest.approx(float(card_figure(card, "Set5 x2")), abs=0.011)
    assert np.mean(figures) > 35.0


def restore(name: str, pixels: np.ndarray) -> np.ndarray:
    given = torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1)[None] / 255.0
    output = load(name).network(given)
    return output[0].permute(1, 2, 0).clamp(0, 1).mul(255).round().double().numpy()


@pytest.mark.release
@pytest.mark.parametrize("name", [name for name in SHIPPED if name.startswith("uformer_denoise")])
def test_the_shipped_denoisers_reach_the_figure_of_their_card(name: str) -> None:
    """Set5 with noise of sigma 25, RGB: the figure in the card, far above the noisy images."""
    figures, before = [], []
    for number, file in enumerate(sorted(shared_path("data", "set5", "HR").glob("*.png"))):
        truth = rgb(file).astype(np.float32)
        noisy = with_noise(truth, 25.0, (number,))
        for decibels, pixels in ((figures, restore(name, noisy)), (before, noisy)):
            decibels.append(10 * np.log10(255**2 / np.mean((pixels - truth) ** 2)))
    card = pretrained_path(name).with_suffix(".md").read_text(encoding="utf-8")
    assert np.mean(figures) == pytest.approx(float(card_figure(card, "Set5")), abs=0.011)
    assert np.mean(figures) > np.mean(before) + 7


@pytest.mark.release
def test_the_shipped_classifier_reaches_the_figure_of_its_card(tmp_path: Path) -> None:
    """CIFAR-10's 10,000 test images: the figure in the card."""
    bundle = shared_path("data", "cifar10", "cifar10_images_jpg.bundle")
    subprocess.run(["git", "clone", "-q", str(bundle), str(tmp_path / "cifar10")], check=True)
    recipe = Classifying()
    right = recipe.accuracy(
        load("vit_cifar10_p4").network.state_dict(), recipe.held_out(tmp_path / "cifar10")
    )
    card = pretrained_path("vit_cifar10_p4").with_suffix(".md").read_text(encoding="utf-8")
    assert 100 * right == pytest.approx(float(card_figure(card, "CIFAR-10, test")), abs=0.011)


def test_the_manual_lists_every_card() -> None:
    page = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
    cards = re.findall(r"^\| \[`(\w+)`\]\(\.\./models/pretrained/(\w+)\.md\) \|", page, re.M)
    assert sorted(cards) == [(name, name) for name in SHIPPED]


def test_the_metadata_is_sorted_json() -> None:
    content = pretrained_path().read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    text = header["__metadata__"]["nystra"]
    assert text == json.dumps(json.loads(text), sort_keys=True)
