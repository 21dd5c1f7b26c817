"""HAT and Uformer as model files: every size, mechanism, window and precision."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
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
from nystra.models.hat.network import HAT
from nystra.models.uformer.network import Uformer
from nystra.runtime import ImageData, Session, read_image, write_image

Files: TypeAlias = Callable[[str], Path]

pytestmark = pytest.mark.full
release = pytest.mark.release

HAT_HYPER: dict[str, Any] = {
    "upscale": 2,
    "window_size": 8,
    "compress_ratio": 3,
    "squeeze_factor": 6,
    "conv_scale": 0.5,
    "depths": [2],
    "embed_dim": 12,
    "num_heads": [2],
    "upsampler": "pixelshuffledirect",
}
UFORMER_HYPER: dict[str, Any] = {
    "embed_dim": 4,
    "depths": (1, 1, 2, 1, 1, 1, 2, 1, 1),
    "num_heads": (1, 1, 2, 2, 2, 2, 2, 1, 1),
    "window_size": 4,
    "img_size": 32,
    "mlp_ratio": 2.0,
    "modulator": True,
}
SIZES = {"hat": (1, 3, 24, 40), "uformer": (1, 3, 40, 70)}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The checkpoint of each network."""

    @cache
    def saved(name: str) -> Path:
        path = tmp_path_factory.mktemp(name) / f"{name}.safetensors"
        if name == "hat":
            return save_generated(HAT(**HAT_HYPER), path, 0.7, conv_scale=0.5)
        return save_generated(Uformer(**UFORMER_HYPER), path, 0.5, img_size=32)

    return saved


@pytest.fixture(scope="module")
def models(checkpoints: Files, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The model file of each network, with exact attention."""

    @cache
    def made(name: str) -> Path:
        result = exported(checkpoints(name), tmp_path_factory.mktemp("full"), "full")
        assert result.validation.passed
        return result.model

    return made


def test_every_attention_is_one_node(models: Files) -> None:
    nodes = Counter(
        node.op_type for node in onnx.load(models("hat")).graph.node if node.domain == "nystra"
    )
    assert nodes == {"NystraWindowSoftmax": 2, "NystraWindowOverlap": 1}


@pytest.mark.parametrize(
    ("name", "library", "shape"),
    [
        *(
            ("hat", library, shape)
            for library in ("auto", "none")
            for shape in ((1, 3, 1, 1), (2, 3, 9, 23), (1, 3, 16, 24))
        ),
        *(("uformer", "auto", shape) for shape in ((1, 3, 1, 1), (2, 3, 33, 31), (1, 3, 32, 96))),
    ],
)
def test_the_file_is_the_network_at_every_size(
    name: str, library: str, shape: tuple[int, ...], models: Files, checkpoints: Files
) -> None:
    assert_is_the_network(models(name), checkpoints(name), shape, library)


@pytest.mark.parametrize(
    ("name", "scale", "window", "sites"),
    [("hat", 2, 8, 3), ("uformer", 1, 4, sum(UFORMER_HYPER["depths"]))],
)
def test_the_facts_of_the_file(
    name: str, scale: int, window: int, sites: int, models: Files
) -> None:
    facts = Session(models(name)).facts
    assert (facts.architecture, facts.task, facts.scale) == (name, "restoration", scale)
    assert facts.window == (window, window)
    plan = json.loads(models(name).with_suffix(".plan.json").read_text())
    assert len(plan["sites"]) == sites


def test_images_are_restored(models: Files, checkpoints: Files, tmp_path: Path) -> None:
    noisy = np.random.default_rng(0).integers(0, 256, (37, 50, 3)) / np.float32(255)
    write_image(tmp_path / "noisy.png", ImageData(noisy))
    command = [
        "run",
        str(models("uformer")),
        "-i",
        str(tmp_path / "noisy.png"),
        "-o",
        str(tmp_path / "o.png"),
    ]
    assert main(command) == 0
    with torch.no_grad():
        given = torch.from_numpy(noisy).permute(2, 0, 1)[None].float()
        expected = (
            load(checkpoints("uformer")).network(given).clamp(0, 1)[0].permute(1, 2, 0).numpy()
        )
    restored = read_image(tmp_path / "o.png").pixels
    np.testing.assert_allclose(restored, expected, atol=0.51 / 255 + 2e-5)


def test_inspect_shows_the_overlapping_sites(
    checkpoints: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(checkpoints("hat")), "--attn", "cluster"]) == 0
    text = capsys.readouterr().out
    assert "hat, 2x, 3 channels, window 8x8" in text
    (line,) = (line for line in text.splitlines() if "overlap_attn" in line)
    assert "144" in line
    assert "full" in line


def test_inspect_counts_sites_and_operations(
    checkpoints: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(checkpoints("uformer")), "--attn", "full"]) == 0
    text = capsys.readouterr().out
    assert "uformer, 1x, 3 channels, window 4x4" in text
    assert text.count(".attn ") == sum(UFORMER_HYPER["depths"])
    assert "of the network's operations" in text
    assert main(["inspect", str(checkpoints("uformer")), "--json"]) == 0
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
    ("name", "attention", "more"),
    [
        ("hat", "cluster", {}),
        ("hat", "nystra", {}),
        ("hat", "nystromformer", {"precision": "fp16", "opset": 18}),
        pytest.param("hat", "full", {"precision": "fp16"}, marks=release),
        ("hat", "full", {"precision": "bf16"}),
        ("hat", "full", {"hyper": {"window_size": 16}}),
        pytest.param("uformer", "cluster", {}, marks=release),
        pytest.param("uformer", "nystromformer", {"precision": "fp16", "opset": 18}, marks=release),
        pytest.param("uformer", "full", {"precision": "bf16"}, marks=release),
        ("uformer", "nystra", {"hyper": {"window_size": 16}}),
    ],
)
def test_mechanisms_windows_and_precisions(
    name: str, attention: str, more: dict[str, Any], checkpoints: Files, tmp_path: Path
) -> None:
    """For one size, since an export for any size takes long."""
    result = exported(checkpoints(name), tmp_path, attention, static=SIZES[name], **more)
    assert result.validation.passed
    side = more.get("hyper", HAT_HYPER if name == "hat" else UFORMER_HYPER)["window_size"]
    assert json.loads(result.model.with_suffix(".plan.json").read_text())["window"] == [side] * 2


@release
@pytest.mark.parametrize("name", ["hat", "uformer"])
def test_two_exports_are_the_same_bytes(name: str, checkpoints: Files, tmp_path: Path) -> None:
    assert_two_exports_are_equal(checkpoints(name), tmp_path, SIZES[name])
