"""The benchmark of quality computes the figures of ``nystra validate`` and prints them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nystra.export.pytorch.network_session import NetworkSession
from nystra.models import load
from nystra.runtime.images.images import read_image
from nystra.runtime.metrics.image_quality import psnr, ssim
from nystra.runtime.metrics.measures import clip_and_measure_psnr
from shared import ROOT

pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, str]:
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for number, (height, width) in enumerate([(20, 24), (33, 17)]):
        coarse = random.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), dtype=np.uint8)
        large = Image.fromarray(coarse).resize((2 * width, 2 * height), Image.Resampling.BICUBIC)
        large.save(folder / f"{number}_HR.png")
        small = large.resize((width, height), Image.Resampling.BICUBIC)
        small.save(folder / f"{number}_LR.png")
    output = subprocess.run(
        [
            *(sys.executable, "-m", "studies.quality"),
            *("--model", "swinir_x2_w16", "--threads", "1"),
            *("--set", "Tiny", str(folder), str(folder)),
            *("--tables", "plans,bias", "--json", str(folder / "out.json")),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return folder, json.loads((folder / "out.json").read_text()), output.stdout


def images(folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        (read_image(path).pixels, read_image(str(path).replace("LR", "HR")).pixels)
        for path in sorted(folder.glob("*_LR.png"))
    ]


def full_outputs(folder: Path) -> list[np.ndarray]:
    run = NetworkSession(load("swinir_x2_w16").network)
    return [run(np.moveaxis(small, 2, 0)[None].astype(np.float32)) for small, _ in images(folder)]


def test_the_figures_of_full_are_those_of_the_network(measured: tuple[Path, dict, str]) -> None:
    folder, document, _ = measured
    first = document["plans"][0]
    figures = []
    for output, (_, truth) in zip(full_outputs(folder), images(folder), strict=True):
        image = np.moveaxis(np.round(np.clip(output[0], 0, 1) * 255.0) / 255.0, 0, 2)
        figures.append(
            [measure(image, truth, crop_border=2, channel="y") for measure in (psnr, ssim)]
        )
    assert first["plan"] == "full"
    np.testing.assert_allclose([first["psnr"], first["ssim"]], np.mean(figures, 0), atol=1e-9)


def test_full_without_bias_is_the_network_with_an_empty_table(
    measured: tuple[Path, dict, str],
) -> None:
    folder, document, _ = measured
    bare = load("swinir_x2_w16").network
    for name, parameter in bare.named_parameters():
        if name.endswith("relative_position_bias_table"):
            parameter.zero_()
    run = NetworkSession(bare)
    expected = [
        clip_and_measure_psnr(run(np.moveaxis(small, 2, 0)[None].astype(np.float32)), full)
        for full, (small, _) in zip(full_outputs(folder), images(folder), strict=True)
    ]
    row = document["bias"][1]
    assert row["against_full"] == pytest.approx(np.mean(expected), abs=0.01)
    assert row["against_full_worst"] == pytest.approx(min(expected), abs=0.01)


def test_every_plan_is_a_row_and_only_guards_have_a_share(
    measured: tuple[Path, dict, str],
) -> None:
    _, document, text = measured
    rows = document["plans"]
    assert len({row["plan"] for row in rows}) == len(rows)
    for row in rows:
        guarded = row["plan"].startswith("nystra ") and not row["plan"].endswith("no guard")
        assert (row["guarded"] is not None) == guarded, row
        assert f"| {row['plan']} |" in text
    assert any(row["guarded"] for row in rows)
