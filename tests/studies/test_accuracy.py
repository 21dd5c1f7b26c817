"""The tables of small trained networks: video (RVRT) and patches at two scales (CSNLN)."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nystra.export.attention.site import find_sites
from studies.psal import super_resolution
from studies.rvrt import accuracy
from studies.training.__main__ import write_weights
from studies.training.enlarging_by_csnln import EnlargingByCsnln
from studies.training.enlarging_videos import EnlargingVideos
from studies.training.recipe import Recipe


def write(path: Path, recipe: Recipe) -> None:
    """Write a network whose last convolution does something."""
    state = recipe.network().state_dict()
    generator = torch.Generator().manual_seed(1)
    state = {
        key: 0.02 * torch.randn(value.shape, generator=generator)
        if key.startswith("conv_last") else value
        for key, value in state.items()
    }  # fmt: skip
    write_weights(path, state, recipe, [])


def images(folder: Path, count: int, scale: int, side: int) -> tuple[Path, Path]:
    """Write small images and large ones."""
    random = np.random.default_rng(0)
    for name in ("small", "large"):
        (folder / name).mkdir()
    for number in range(count):
        pixels = random.integers(0, 256, (side // 4, side // 4, 3), dtype=np.uint8)
        small = Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)
        small.save(folder / "small" / f"{number}.png")
        large = small.resize((scale * side, scale * side), Image.Resampling.BICUBIC)
        large.save(folder / "large" / f"{number}.png")
    return folder / "small", folder / "large"


def rows(text: str) -> dict[str, list[float]]:
    """Return PSNR, SSIM, and the losses of both, by the name of a row."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {name: [float(x) for cell in rest for x in cell.split(" / ")] for name, *rest in cells}


def test_a_video_with_every_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "v.safetensors", EnlargingVideos(patch=8, window=8, width=8))
    folders = map(str, images(tmp_path, 2, 4, 16))
    arguments = [str(tmp_path / "v.safetensors"), *folders, "--channel", "rgb"]
    monkeypatch.setattr("sys.argv", ["accuracy", *arguments])
    accuracy.main()
    found = rows(capsys.readouterr().out)
    assert found.keys() == {"bicubic", *accuracy.PLANS}
    assert found["full"][2:] == [0, 0]
    for name, (decibels, similarity, *lost) in found.items():
        assert lost[0] == pytest.approx(found["full"][0] - decibels, abs=0.011), name
        assert lost[1] == pytest.approx(found["full"][1] - similarity, abs=2e-4), name


def test_figures_of_a_video_are_means_over_frames() -> None:
    truth = np.full((2, 16, 16, 3), 0.5)
    video = truth + np.array([0.1, 0.2]).reshape(2, 1, 1, 1)
    levels = [(round(255 * value) - 127.5) / 255 for value in (0.6, 0.7)]
    luma = [219 / 255 * level for level in levels]
    expected = np.mean([-20 * np.log10(value) for value in luma])
    assert accuracy.quality(video, truth, "y")[0] == pytest.approx(expected)
    expected = np.mean([-20 * np.log10(abs(level)) for level in levels])
    assert accuracy.quality(video, truth, "rgb")[0] == pytest.approx(expected)


def test_patches_with_every_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = EnlargingByCsnln(patch=16, width=8)
    write(tmp_path / "c.safetensors", recipe)
    small, large = images(tmp_path, 2, 2, 24)
    arguments = ["x", str(tmp_path / "c.safetensors"), "--set", "S", str(small), str(large)]
    monkeypatch.setattr("sys.argv", [*arguments, "--side", "16"])
    super_resolution.main()
    found = rows(capsys.readouterr().out)
    assert found.keys() == {"bicubic", *super_resolution.PLANS}
    assert found["full"][2:] == [0, 0]
    assert found["psal"][0] > 20  # the network starts near the bilinear enlargement
    (part, whole), _ = super_resolution.pairs(small, large, 16, 2)
    assert (part.shape, whole.shape) == ((16, 16, 3), (32, 32, 3))


def test_the_branch_within_a_scale_can_stay_exact() -> None:
    network = EnlargingByCsnln(width=8).network()
    own = {site.path: site.module.implementation for site in find_sites(network)}
    kinds = {
        name: {
            (type(site.module).__name__, site.module.implementation.mechanism.name)
            for site in find_sites(super_resolution.planned(network, name))
        }
        for name in ("psal between scales", "psal")
    }
    assert kinds["psal between scales"] == {
        ("CrossScaleAttention", "psal"), ("NonLocalAttention", "full")
    }  # fmt: skip
    assert kinds["psal"] == {("CrossScaleAttention", "psal"), ("NonLocalAttention", "psal")}
    assert own == {site.path: site.module.implementation for site in find_sites(network)}
