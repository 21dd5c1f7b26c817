"""HAT as a model file: every size, mechanism and precision, one node per attention."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest

from network_exports import (
    assert_is_the_network,
    assert_two_exports_are_equal,
    exported,
    save_generated,
)
from nystra.cli.main import main
from nystra.models.hat.network import HAT
from nystra.runtime import Session

full, release = pytest.mark.full, pytest.mark.release

HYPER: dict[str, Any] = {
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
SIZE = (1, 3, 24, 40)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hat") / "hat.safetensors"
    return save_generated(HAT(**HYPER), path, 0.7, conv_scale=0.5)


@pytest.fixture(scope="module")
def model(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = exported(checkpoint, tmp_path_factory.mktemp("full"), "full")
    assert result.validation.passed
    return result.model


def test_every_attention_is_one_node(model: Path) -> None:
    nodes = Counter(node.op_type for node in onnx.load(model).graph.node if node.domain == "nystra")
    assert nodes == {"NystraWindowSoftmax": 2, "NystraWindowOverlap": 1}


@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (2, 3, 9, 23), (1, 3, 16, 24)])
@pytest.mark.parametrize("library", ["auto", "none"])
def test_the_file_is_the_network_at_every_size(
    shape: tuple[int, ...], library: str, model: Path, checkpoint: Path
) -> None:
    assert_is_the_network(model, checkpoint, shape, library)


def test_the_facts_of_the_file(model: Path) -> None:
    facts = Session(model).facts
    assert (facts.architecture, facts.task, facts.scale) == ("hat", "restoration", 2)
    assert facts.window == (8, 8)


def test_inspect_shows_the_overlapping_sites(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(checkpoint), "--attn", "cluster"]) == 0
    text = capsys.readouterr().out
    assert "hat, 2x, 3 channels, window 8x8" in text
    (line,) = (line for line in text.splitlines() if "overlap_attn" in line)
    assert "144" in line
    assert "full" in line


@pytest.mark.parametrize(
    ("attention", "more"),
    [
        pytest.param("cluster", {}, marks=full),
        pytest.param("nystra", {}, marks=full),
        pytest.param("nystromformer", {"precision": "fp16", "opset": 18}, marks=full),
        pytest.param("full", {"precision": "fp16"}, marks=release),
        pytest.param("full", {"precision": "bf16"}, marks=full),
        pytest.param("full", {"hyper": {"window_size": 16}}, marks=full),
    ],
)
def test_mechanisms_windows_and_precisions(
    attention: str, more: dict[str, Any], checkpoint: Path, tmp_path: Path
) -> None:
    """For one size, since an export for any size takes long."""
    result = exported(checkpoint, tmp_path, attention, static=SIZE, **more)
    assert result.validation.passed


@release
def test_two_exports_are_the_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    assert_two_exports_are_equal(checkpoint, tmp_path, SIZE)
