"""Training of a classifier: its data, its random choices, and the written file."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nystra.models.checkpoints.checkpoint import read_checkpoint
from nystra.models.loading import load
from studies.training.__main__ import main
from studies.training.classifying import Classifying
from studies.training.labeled import Labeled, read_labeled
from studies.training.loop import train

TINY = Classifying(
    steps=60,
    batch=8,
    side=8,
    patch_size=4,
    width=8,
    hidden=16,
    depth=1,
    heads=2,
    rank=2,
    rate=1e-2,
    classes=2,
)
FLAGS = [
    *("--network", "vit", "--steps", "2", "--batch", "4", "--side", "8", "--patch-size", "4"),
    *("--width", "8", "--hidden", "16", "--depth", "1", "--heads", "2", "--threads", "1"),
    *("--classes", "2"),
]


def gray(value: int) -> np.ndarray:
    return np.full((8, 8, 3), value, np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("images")
    for part in ("train", "test"):
        for number, name in enumerate(("dark", "light")):
            (home / part / name).mkdir(parents=True)
            for shade in range(4):
                image = Image.fromarray(gray(20 + 180 * number + 8 * shade))
                image.save(home / part / name / f"{shade}.png")
    return home


def test_classes_are_the_folders_in_their_order(folder: Path) -> None:
    images = read_labeled(folder / "train", 8)
    assert images.names == ("dark", "light")
    np.testing.assert_array_equal(images.classes, [0] * 4 + [1] * 4)
    assert images.pixels.shape == (8, 8, 8, 3)
    assert images[5][1] == 1


def test_weights_decay_by_their_share(folder: Path, tmp_path: Path) -> None:
    """A step of AdamW is that of Adam, and rate times decay of every weight less."""
    one = dataclasses.replace(TINY, steps=1)
    images = one.training_set(folder)
    start = one.network().state_dict()
    plain = train(one, images, tmp_path / "plain.pt")
    less = train(dataclasses.replace(one, decay=0.5), images, tmp_path / "less.pt")
    for name, value in start.items():
        share = 0.9 * one.rate * 0.5  # 0.9: the moving average after one step
        torch.testing.assert_close(plain[name] - less[name], share * value, atol=1e-7, rtol=1e-3)


def test_what_is_drawn_is_a_part_of_a_framed_image() -> None:
    pixels = np.arange(1, 65, dtype=np.uint8).reshape(1, 8, 8, 1).repeat(3, 3)
    images = Labeled(pixels, np.array([7]), tuple("abcdefgh"))
    given, classes = TINY.draw(images, 0)
    again, _ = TINY.draw(images, 0)
    np.testing.assert_array_equal(given, again)
    assert not np.array_equal(given, TINY.draw(images, 1)[0])
    assert set(classes) == {7}
    values = np.rint((given[:, 0] * np.float32(0.2470) + np.float32(0.4914)) * 255).astype(int)
    for crop in values:
        rows, columns = np.nonzero(crop)
        inside = crop[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert (inside > 0).all()  # one rectangle of the image, black around it
        assert set(np.diff(inside, axis=1).ravel()) <= {1} or set(
            np.diff(inside, axis=1).ravel()
        ) <= {-1}  # mirrored


@pytest.mark.full
@pytest.mark.parametrize("attention", ["full", "linformer", "performer", "nystromformer"])
def test_every_attention_learns(attention: str, folder: Path, tmp_path: Path) -> None:
    recipe = dataclasses.replace(TINY, attention=attention)
    images = recipe.training_set(folder)
    weights = train(recipe, images, tmp_path / "state.pt")
    assert recipe.accuracy(weights, recipe.held_out(folder)) == 1.0


def test_the_command_writes_what_loads(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "vit.safetensors"
    assert main(["--data", str(folder), "--out", str(out), *FLAGS]) == 0
    assert re.search(r"vit\.safetensors: \d+\.\d\d% on held-out images", capsys.readouterr().out)
    loaded = load(out)
    assert loaded.facts.sides == {"height": 8, "width": 8}
    assert loaded.facts.preprocessing is not None
    assert loaded.facts.preprocessing.mean == (0.4914, 0.4822, 0.4465)
    assert loaded.facts.preprocessing.labels == ("dark", "light")
    assert all(value.dtype == torch.float16 for value in read_checkpoint(out).state.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--data", "nowhere"], r"nowhere/train is not a folder"),
        (["--side", "16"], r"0\.png is 8x8: every image must be 16x16"),
        (["--attention", "magic"], r"--attention is .magic., expected full, linformer"),
        (["--classes", "3"], r"train holds 2 classes, expected those of --classes 3"),
        (["--heads", "3"], r"--width 8 must be a multiple of --heads 3"),
    ],
)
def test_bad_input_is_a_clear_error(
    change: list[str],
    message: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = ["--data", str(folder), "--out", str(tmp_path / "vit.safetensors"), *FLAGS]
    assert main([*base, *change]) == 2
    assert re.search(message, capsys.readouterr().err)
