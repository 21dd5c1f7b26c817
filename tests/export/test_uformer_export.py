"""Uformer as a model file: every size, every mechanism, other windows, low precision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from network_exports import (
    assert_is_the_network,
    assert_two_exports_are_equal,
    exported,
    save_generated,
)
from nystra.cli.main import main
from nystra.models import load
from nystra.models.uformer.network import Uformer
from nystra.runtime import ImageData, Session, read_image, write_image

full, release = pytest.mark.full, pytest.mark.release

HYPER: dict[str, Any] = {
    "embed_dim": 4,
    "depths": (1, 1, 2, 1, 1, 1, 2, 1, 1),
    "num_heads": (1, 1, 2, 2, 2, 2, 2, 1, 1),
    "window_size": 4,
    "img_size": 32,
    "mlp_ratio": 2.0,
    "modulator": True,
}
SIZE = (1, 3, 40, 70)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uformer") / "u.safetensors"
    return save_generated(Uformer(**HYPER), path, 0.5, img_size=32)


@pytest.fixture(scope="module")
def model(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = exported(checkpoint, tmp_path_factory.mktemp("full"), "full")
    assert result.validation.passed
    return result.model


@full
@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (2, 3, 33, 31), (1, 3, 32, 96)])
def test_the_file_is_the_network_at_every_size(
    shape: tuple[int, ...], model: Path, checkpoint: Path
) -> None:
    assert_is_the_network(model, checkpoint, shape)


@full
def test_the_facts_of_the_file(model: Path) -> None:
    facts = Session(model).facts
    assert (facts.architecture, facts.task, facts.scale) == ("uformer", "restoration", 1)
    assert facts.window == (4, 4)
    nodes = json.loads(model.with_suffix(".plan.json").read_text())["sites"]
    assert len(nodes) == sum(HYPER["depths"])


@full
def test_images_are_restored(model: Path, checkpoint: Path, tmp_path: Path) -> None:
    noisy = np.random.default_rng(0).integers(0, 256, (37, 50, 3)) / np.float32(255)
    write_image(tmp_path / "noisy.png", ImageData(noisy))
    command = ["run", str(model), "-i", str(tmp_path / "noisy.png"), "-o", str(tmp_path / "o.png")]
    assert main(command) == 0
    with torch.no_grad():
        given = torch.from_numpy(noisy).permute(2, 0, 1)[None].float()
        expected = load(checkpoint).network(given).clamp(0, 1)[0].permute(1, 2, 0).numpy()
    restored = read_image(tmp_path / "o.png").pixels
    np.testing.assert_allclose(restored, expected, atol=0.51 / 255 + 2e-5)


def test_inspect_counts_sites_and_operations(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(checkpoint), "--attn", "full"]) == 0
    text = capsys.readouterr().out
    assert "uformer, 1x, 3 channels, window 4x4" in text
    assert text.count(".attn ") == sum(HYPER["depths"])
    assert "of the network's operations" in text
    assert main(["inspect", str(checkpoint), "--json"]) == 0
    flops = json.loads(capsys.readouterr().out)["flops"]
    assert flops["shape"] == [1, 3, 128, 128]
    attention = 0
    for level, depth, window in [(0, 2, 4), (1, 2, 4), (2, 4, 4), (3, 2, 4), (4, 1, 2)]:
        for dim in {0: (4, 8), 1: (8, 16), 2: (16, 32), 3: (32, 64), 4: (64,)}[level]:
            sites = depth if level == 4 else depth // 2
            attention += sites * 2 * 2 * (128 >> level) ** 2 * window**2 * dim
    assert flops["attention"] == attention
    assert 2 * attention < flops["network"]


@pytest.mark.parametrize(
    ("attention", "more"),
    [
        pytest.param("cluster", {}, marks=release),
        pytest.param("nystromformer", {"precision": "fp16", "opset": 18}, marks=release),
        pytest.param("full", {"precision": "bf16"}, marks=release),
        pytest.param("nystra", {"hyper": {"window_size": 16}}, marks=full),
    ],
)
def test_mechanisms_windows_and_precisions(
    attention: str, more: dict[str, Any], checkpoint: Path, tmp_path: Path
) -> None:
    """For one size, since an export for any size takes long."""
    result = exported(checkpoint, tmp_path, attention, static=SIZE, **more)
    assert result.validation.passed
    side = more.get("hyper", HYPER)["window_size"]
    assert json.loads(result.model.with_suffix(".plan.json").read_text())["window"] == [side] * 2


@release
def test_two_exports_are_the_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    assert_two_exports_are_equal(checkpoint, tmp_path, SIZE)
