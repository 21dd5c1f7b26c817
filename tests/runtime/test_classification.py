"""`nystra run` with a classifier: output, files, and refusals."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from classifier_models import COLORS, TOY, plain, save_classifier
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.ports.preprocessing import Preprocessing, Resize
from nystra.runtime import ImageData, Session, read_image, write_image
from nystra.runtime.tasks.classification.classifier import classifier_for
from nystra.runtime.tasks.classification.listing import format_listing, read_labels
from nystra.runtime.tasks.classification.result import ClassResult, RankedClass
from nystra.runtime.tasks.classification.run import rank_classes
from nystra.runtime.tasks.restoration.restorer import restorer_for
from runtime_models import save_upscaler


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for color in COLORS:
        write_image(tmp_path / "in" / f"{color}.png", plain(color))
    (tmp_path / "in" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "in" / "notes.txt").write_text("no image")
    return tmp_path / "in"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_classifier(tmp_path / "toy.onnx")


def run(model: Path, source: Path, *more: object) -> int:
    return main(["run", str(model), "-i", str(source), "--threads", "1", *map(str, more)])


def test_a_table_of_one_image(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, folder / "green.png", "--top", 2) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["image", "class", "label", "probability"]
    assert lines[1].split()[1:] == ["1", "green", "100.0%"]
    assert len(lines) == 3
    assert run(model, folder / "green.png", "--json") == 0
    (result,) = json.loads(capsys.readouterr().out)["images"]
    assert [entry["label"] for entry in result["classes"]] == ["green", "red", "blue"]
    assert sum(entry["probability"] for entry in result["classes"]) == pytest.approx(1)
    shares = np.exp([entry["logit"] for entry in result["classes"]])
    assert result["classes"][2]["probability"] == pytest.approx(shares[2] / shares.sum())


def test_a_folder_with_a_bad_image(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, folder, "-o", tmp_path / "out.csv", "--top", 2) == 2
    said = capsys.readouterr()
    assert "3 done, 1 failed, 1 skipped (1 not images: notes.txt)" in said.out
    assert "bad.png failed: " in said.err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert list(rows[0]) == ["input", "rank", "class", "label", "probability", "logit", "error"]
    best = {Path(row["input"]).stem: row["label"] for row in rows if row["rank"] == "1"}
    assert best == {color: color for color in COLORS}
    assert [row["input"] for row in rows if row["error"]] == [str(folder / "bad.png")]
    assert run(model, folder, "--format", "json", "--top", 1) == 2
    document = json.loads(capsys.readouterr().out)
    statuses = {Path(entry["input"]).stem: entry["status"] for entry in document["images"]}
    assert statuses == {"bad": "failed"} | dict.fromkeys(COLORS, "done")


def test_labels_come_from_a_file_or_from_nobody(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labels.txt").write_text("Rot\nGrün\nBl\x1b[1mau\n", encoding="utf-8")
    (tmp_path / "labels.json").write_text('["r", "g", "b"]')
    assert read_labels(tmp_path / "labels.json") == ("r", "g", "b")
    flags = ("--labels", tmp_path / "labels.txt", "--top", 1)
    assert run(model, folder / "green.png", *flags, "--format", "csv") == 0
    assert ",1,1,Grün," in capsys.readouterr().out
    assert run(model, folder / "blue.png", *flags, "-o", "-") == 0
    assert ",1,2,Bl\\x1b[1mau," in capsys.readouterr().out
    nobody = Preprocessing(TOY.resize, TOY.crop, TOY.mean, TOY.std)
    save_classifier(model, nobody)
    assert run(model, folder / "blue.png", "--format", "csv", "--top", 1) == 0
    assert ",1,2,,0.97" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--labels", "nine.txt"), "--labels has 9 labels, the model has 3 classes"),
        (("--labels", "gap.txt"), "gap.txt have no label, or an empty one"),
        (("--labels", "bytes.txt"), "not UTF-8 text"),
        (("--labels", "object.json"), "not a JSON list of strings"),
        (("-o", "there.csv"), "there.csv exists: choose another output or add --overwrite"),
        (("-o", "out.png"), "out.png is not a list of classes: give a .csv or .json file"),
        (("-o", "out.csv", "--format", "json"), "out.csv and --format json contradict"),
        (("-o", "there.csv/out.csv"), "is a file, expected a folder"),
        (("-o", "-", "--json"), "--json and an output on stdout"),
        (("--format", "csv", "--json"), "--json and an output on stdout"),
        (("--format", "png"), "--format is 'png', expected csv or json"),
        (("--top", "0"), "--top is 0, expected a whole number of 1 or more"),
        (("--tile", "64", "--suffix", "_x"), "--suffix, --tile: does not apply to a model of the"),
        (("--crf", "3"), "--crf: does not apply to a model of the task 'classification'"),
    ],
)
def test_what_is_refused(
    model: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nine.txt").write_text("\n".join("abcdefghi"))
    Path("gap.txt").write_text("a\n\nb")
    Path("bytes.txt").write_bytes(b"\xff\xfe")
    Path("object.json").write_text('{"0": "a"}')
    Path("there.csv").write_text("mine")
    before = sorted(tmp_path.iterdir())
    assert run(model, folder, *flags) == 2
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
    assert Path("there.csv").read_text() == "mine"


def test_flags_and_outputs_of_other_tasks(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = save_upscaler(tmp_path / "large.onnx")
    assert run(large, folder / "red.png") == 2
    assert "the task 'restoration' needs an output: give -o" in capsys.readouterr().err
    assert run(large, folder / "red.png", "-o", tmp_path / "o.png", "--top", 3) == 2
    assert "--top: does not apply to a model of the task 'restoration'" in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(model, empty) == 2
    assert "empty holds no images" in capsys.readouterr().err
    with pytest.raises(NystraError, match="is not a classifier: expected an image input"):
        classifier_for(Session(large))
    with pytest.raises(
        NystraError,
        match="returns logits instead of an image, as a model of the task 'classification' does",
    ):
        restorer_for(Session(model))
    labels = tuple(f"a label of class {number}" for number in range(50))
    save_classifier(model, Preprocessing(labels=labels))
    assert main(["inspect", str(model)]) == 0
    printed = capsys.readouterr().out
    assert "a label of class 2" in printed
    assert "characters, --json prints them)" in printed
    assert "class 49" not in printed


def test_sizes_and_files_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    bare = classifier_for(Session(save_classifier(path, None), threads=1))
    assert bare(np.zeros((8, 8, 1), np.float32)).shape == (3,)
    with pytest.raises(NystraError, match="takes 8x8 pixels, and this image is 9x8"):
        bare(np.zeros((8, 9, 3), np.float32))
    for wrong, message in (
        (Preprocessing(Resize((9, 8))), r"prepares images of \(9, 8\), height and width, and"),
        (Preprocessing(Resize((8, 8)), mean=(0.5,), std=(0.5,)), "a mean of 1 numbers for 3"),
        (Preprocessing(Resize((8, 8)), labels=("a",)), "has 1 labels, the model has 3 classes"),
    ):
        with pytest.raises(NystraError, match=message):
            classifier_for(Session(save_classifier(path, wrong), threads=1))
    with pytest.raises(NystraError, match="`range` does not apply to classifiers"):
        classifier_for(Session(path, threads=1, range="255"))
    fixed = classifier_for(Session(save_classifier(path, TOY, batch=2), threads=1))
    free = classifier_for(Session(save_classifier(path, TOY, ("h", "w")), threads=1))
    pixels = plain("blue").pixels
    np.testing.assert_array_equal(fixed(pixels), free(pixels))
    broken = save_classifier(path, TOY, gain=(1.0, np.nan, 1.0))
    with pytest.raises(NystraError, match="the output of the model has NaN or infinity"):
        classifier_for(Session(broken, threads=1))(pixels)


def test_equal_logits_rank_by_class() -> None:
    classes = rank_classes(np.array([1.0, 3.0, 3.0]), (), 2)
    assert [entry.number for entry in classes] == [1, 2]
    assert classes[0].label is None
    assert len(rank_classes(np.array([1.0, 2.0]), (), 5)) == 2


def test_an_image_from_stdin_is_any_image(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stdin:
        buffer = io.BytesIO()

    write_image(tmp_path / "p.png", ImageData(plain("red").pixels, np.ones((20, 31), np.float32)))
    Stdin.buffer = io.BytesIO((tmp_path / "p.png").read_bytes())
    monkeypatch.setattr("sys.stdin", Stdin)
    assert run(model, Path("-"), "--top", 1) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["-", "0", "red", "100.0%"]
    assert read_image(tmp_path / "p.png").alpha is not None


def test_no_cell_of_a_table_is_a_formula() -> None:
    """Labels and file names may come from strangers."""
    classes = [RankedClass(0, '=HYPERLINK("http://evil","x")', 0.5, -1.5)]
    classes += [RankedClass(1, label, 0.5, 0.0) for label in ("@x", "+1", " =1", "a-b", "\t=2")]
    results = [
        ClassResult("=cmd|calc!A0.png", classes=classes),
        ClassResult("-x.png", status="failed", error="=1 is damaged"),
    ]
    rows = list(csv.reader(io.StringIO(format_listing(results, "csv").decode())))[1:]
    assert [row[0] for row in rows] == ["'=cmd|calc!A0.png"] * 6 + ["'-x.png"]
    assert [row[3] for row in rows] == [
        *('\'=HYPERLINK("http://evil","x")', "'@x", "'+1", "' =1", "a-b", "\\t=2", ""),
    ]
    assert rows[0][5] == "-1.5"
    assert rows[-1][6] == "'=1 is damaged"
    assert b"'" not in format_listing(results, "json")
