"""The sheet of a model file: its images, sizes and captions; the page of an export."""

import html
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from exported_files import swinir_files
from nystra.cli.main import export_main, main
from nystra.core.ports.port import Port
from nystra.export.load.images import photographs
from nystra.export.report.page import find_largest_change
from nystra.export.report.scenes import find_shipped_scenes, scene_side, user_scenes
from nystra.models.pretrained import checkpoint_path
from nystra.runtime import ImageData, Session, read_image, write_image
from nystra.runtime.tasks.restoration.restorer import Restorer

Cells = list[list[tuple[str, npt.NDArray[Any]]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``model.onnx``, the checkpoint, and two images with their ground truth."""
    place = tmp_path_factory.mktemp("sheet")
    shutil.copytree(swinir_files(tmp_path_factory), place, dirs_exist_ok=True)
    random = np.random.default_rng(0)
    for name, sides in (("a.png", (300, 21)), ("b.png", (9, 12))):
        low = random.random((*sides, 3)).astype(np.float32)
        for kind, pixels in (("low", low), ("high", low.repeat(2, 0).repeat(2, 1))):
            (place / kind).mkdir(exist_ok=True)
            write_image(place / kind / name, ImageData(pixels))
    return place


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Cells:
    """The rows of the sheet that a command would draw."""
    rows: Cells = []
    target = "nystra.export.report.sheet.comparison_sheet"
    monkeypatch.setattr(target, lambda cells, path, heading: rows.extend(cells))
    return rows


def validate(folder: Path, *more: str) -> int:
    return main(["validate", str(folder / "model.onnx"), "-q", "--sheet", "s.png", *more])


@pytest.mark.full
def test_the_shipped_photographs_stand_on_it(folder: Path, drawn: Cells) -> None:
    assert validate(folder) == 0
    sources = list(photographs().values())
    assert len(drawn) == len(sources)
    session = Session(folder / "model.onnx", threads=1)
    for cells, source in zip(drawn, sources, strict=True):
        captions, images = zip(*cells, strict=True)
        assert captions[:3] == (
            f"{source.stem}: input, 160x160",
            "Lanczos, without the model",
            "exported",
        )
        pixels = read_image(source).pixels
        np.testing.assert_array_equal(images[0], pixels)
        made = np.moveaxis(session(np.moveaxis(pixels, 2, 0)[None])[0], 0, 2)
        np.testing.assert_allclose(images[2], np.clip(made, 0, 1), atol=1e-5)
        factor = float(captions[3].removeprefix("difference from Lanczos x "))
        largest = np.abs(images[2] - images[1]).max(axis=2, keepdims=True)
        np.testing.assert_allclose(images[3], largest * factor, atol=1e-4 * factor)


def test_ones_own_images_with_truth_and_full_attention(folder: Path, drawn: Cells) -> None:
    images = ["--images", str(folder / "low"), "--truth", str(folder / "high")]
    weights = next(folder.glob("*.safetensors"))
    assert validate(folder, *images, "--checkpoint", str(weights)) == 0
    (first, second) = drawn
    names = [caption.partition(":")[0] for caption, _ in first]
    assert names[:4] == ["a.png", "full attention", "exported", "truth"]
    assert names[4].startswith("difference from full attention x ")
    low, high = (read_image(folder / kind / "a.png").pixels for kind in ("low", "high"))
    np.testing.assert_array_equal(first[0][1], low[22:278], "the middle 256 rows")
    np.testing.assert_array_equal(first[3][1], high[44:556])
    assert second[0][0] == "b.png: input, 12x9"
    exact, exported = second[1][1], second[2][1]
    assert 0 < np.abs(exact - exported).max() < 0.5
    assert " dB to truth, " in second[2][0]


def test_what_cannot_be_drawn_is_said_first(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = ["validate", str(folder / "model.onnx"), "--references", str(tmp_path / "none.npz")]
    assert main([*model, "--sheet", "sheet.txt"]) == 2
    assert "suffix '.txt'" in capsys.readouterr().err


@pytest.mark.full
def test_an_export_draws_full_attention_beside_what_it_wrote(
    folder: Path, drawn: Cells, tmp_path: Path
) -> None:
    weights = str(next(folder.glob("*.safetensors")))
    export = ["export", weights, "--attn", "nystra", "-q", "--no-speed", "-o"]
    assert main([*export, str(tmp_path / "m.onnx"), "--sheet", "s.png"]) == 0
    captions = [caption.partition(":")[0] for caption, _ in drawn[0]]
    assert captions[1:3] == ["full attention", "exported"]
    assert captions[3].startswith("difference from full attention x ")
    assert main([*export, str(tmp_path / "other.onnx"), "--sheet", "s.txt"]) == 2
    assert not (tmp_path / "other.onnx").exists(), "refused before the export"


def test_holes_are_in_the_middle_of_what_is_shown(tmp_path: Path) -> None:
    restorer = Restorer(lambda image, hole: image, auxiliary=(Port("hole", "mask"),))
    (scene, *_) = find_shipped_scenes(restorer, 64)
    assert scene.pixels.shape == (64, 64, 3)
    assert scene.truth is scene.pixels
    assert 0 < scene.auxiliary["hole"].mean() < 0.2
    restored = np.random.default_rng(1).random((90, 200, 3)).astype(np.float32)
    mask = np.zeros((90, 200), np.uint8)
    mask[20:30, 150:160] = 255
    for name in ("low", "high"):
        (tmp_path / name).mkdir()
        write_image(tmp_path / name / "a.png", ImageData(restored))
    Image.fromarray(mask).save(tmp_path / "mask.png")
    paths = {"mask": tmp_path / "mask.png"}
    (given,) = user_scenes(tmp_path / "low", tmp_path / "high", paths, restorer, 32)
    rows, columns = np.nonzero(given.auxiliary["hole"][:, :, 0])
    assert given.pixels.shape == (32, 32, 3)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (12, 21, 12, 21)
    np.testing.assert_array_equal(given.truth, given.pixels)


def test_the_side_goes_by_the_scale() -> None:
    def side(scale: int, **small: bool) -> int:
        return scene_side(Restorer(lambda image: image, scale), small=small.get("small", False))

    assert [side(1), side(2), side(4), side(2, small=True)] == [256, 256, 128, 128]


def test_the_part_that_changes_most() -> None:
    difference = np.zeros((100, 90), np.float32)
    difference[61:70, 30:40] = 1
    top, left = find_largest_change(difference, 2)
    assert top % 2 == left % 2 == 0
    assert difference[top : top + 40, left : left + 40].sum() == 90
    assert find_largest_change(difference[:20, :30], 1) == (0, 0)


def test_a_folder_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "page").write_text("")
    arguments = ["swinir_x2_w16", "--attn", "full", "--report", str(tmp_path / "page")]
    assert export_main(arguments) == 2
    assert "is a file, expected a folder" in capsys.readouterr().err


@pytest.mark.full
def test_the_page_of_an_export(tmp_path: Path) -> None:
    checkpoint = checkpoint_path(Path("swinir_x2_w16"))
    arguments = [str(checkpoint), "--attn", "cluster", "-o", str(tmp_path / "small.onnx")]
    page = tmp_path / "new" / "small.export.html"
    assert export_main([*arguments, "--no-speed", "-q", "--report", str(page.parent)]) == 0
    text = html.unescape(page.read_text())
    assert text.count('src="data:image/png') == 3 * (3 + 4)
    for heading in ("Images", "Sites"):
        assert f"<h2>{heading}</h2>" in text
    assert re.search(r"against full\S+>\d\d\.\d dB on average", text)
    for blocks in ("0, 2, 4", "1, 3, 5"):  # without and with shifts: other settings
        assert f"layers.0.residual_group.blocks.{{{blocks}}}.attn" in text
    assert not re.search(r"<script|https?://|<link", text)
