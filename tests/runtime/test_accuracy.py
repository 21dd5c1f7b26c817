"""The accuracy of a classifier: measured, printed, and checked; logits and their references."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classifier_models import labeled, plain, save_classifier
from frames_classifier import JUDGE, Judge, save
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.ports.preprocessing import Preprocessing
from nystra.runtime import ImageData, Session, write_image
from nystra.runtime.checking.baseline import list_guarded_items
from nystra.runtime.checking.validation import validate_against_references
from nystra.runtime.metrics.measures import FIGURES, reference_figures
from nystra.runtime.model.references import ReferenceCase, References, write_references
from nystra.runtime.tasks.classification.classifier import Classifier, classifier_for
from nystra.runtime.tasks.classification.quality import class_numbers, measure_accuracy
from runtime_models import save_upscaler


def guarded(path: Path, **how: object) -> Path:
    """Write a classifier with its references."""
    save_classifier(path, **how)  # type: ignore[arg-type]
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 8, 8), np.uint8)
    logits = Session(path, threads=1)(image.astype(np.float32) / 255)
    case = ReferenceCase({"input": image}, {"logits": logits})
    write_references(path.with_suffix(".npz"), [case], {"roles": {"logits": "logits"}})
    return path


def test_shares_by_hand(tmp_path: Path) -> None:
    folder = labeled(tmp_path, each=2)
    write_image(folder / "red" / "blue.png", plain("blue"))
    measured = measure_accuracy(
        classifier_for(Session(save_classifier(tmp_path / "m.onnx"))), folder
    )
    assert (measured.images, measured.classes) == (7, ("blue", "green", "red"))
    assert (measured.matched_by, measured.top1, measured.top5) == ("label", 6 / 7, 1.0)
    ranks = np.arange(8.0)
    always = Classifier(lambda image: ranks[None], 3, None, Preprocessing(), 8)
    for number in ("7", "3", "2", "0"):
        (tmp_path / "n" / number).mkdir(parents=True)
        write_image(tmp_path / "n" / number / "a.png", plain("red"))
    seen: list[tuple[int, int]] = []
    measured = measure_accuracy(always, tmp_path / "n", lambda *place: seen.append(place))
    assert (measured.matched_by, measured.top1, measured.top5) == ("number", 0.25, 0.5)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_what_a_folder_stands_for() -> None:
    assert class_numbers(["b", "r"], ["r", "g", "b"], 3) == ([2, 0], "label")
    assert class_numbers(["00", "7"], [], 10) == ([0, 7], "number")
    assert class_numbers(["n01", "n02"], ["tench", "hen"], 2) == ([0, 1], "order")
    assert class_numbers(["crane", "hen"], ["crane", "crane"], 2) == ([0, 1], "order")
    with pytest.raises(
        NystraError, match=r"2 subfolders \(a, b, \.\.\.\) do not match the 3 classes"
    ):
        class_numbers(["a", "b"], [], 3)


def test_folders_that_are_refused(tmp_path: Path) -> None:
    classify = classifier_for(Session(save_classifier(tmp_path / "m.onnx"), threads=1))
    with pytest.raises(
        NystraError, match=r"no folder .*absent, expected one with a subfolder per class"
    ):
        measure_accuracy(classify, tmp_path / "absent")
    (tmp_path / "set").mkdir()
    with pytest.raises(NystraError, match="holds no subfolders, expected one for each class"):
        measure_accuracy(classify, tmp_path / "set")
    (tmp_path / "set" / "3").mkdir()
    with pytest.raises(NystraError, match="3 holds no images"):
        measure_accuracy(classify, tmp_path / "set")
    write_image(tmp_path / "set" / "3" / "a.png", plain("red"))
    with pytest.raises(NystraError, match="stands for class 3, the model has 3"):
        measure_accuracy(classify, tmp_path / "set")
    (tmp_path / "set" / "3" / "b.png").write_bytes(b"\x89PNG")
    (tmp_path / "set" / "3" / "a.png").unlink()
    with pytest.raises(NystraError, match=r"b\.png cannot be classified: "):
        measure_accuracy(classify, tmp_path / "set")


def test_validate_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, model = labeled(tmp_path / "set"), guarded(tmp_path / "m.onnx")
    command = ["validate", str(model), "--threads", "1", "--labeled", str(folder)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "labeled images  top-1    top-5" in printed
    assert "file            100.00%  100.00%" in printed
    assert "6 images in 3 folders, matched by label" in printed
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"]["file"]["top1"] == 1.0
    large = save_upscaler(tmp_path / "large.onnx")
    case = ReferenceCase(
        {"input": np.zeros((1, 3, 4, 4), np.uint8)}, {"output": np.zeros((1, 3, 8, 8), np.float32)}
    )
    write_references(large.with_suffix(".npz"), [case], {})
    assert main(["validate", str(large), "--labeled", str(folder)]) == 2
    assert "--labeled: does not apply to a model of the task" in capsys.readouterr().err


def test_check_guards_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, model = labeled(tmp_path / "set"), guarded(tmp_path / "m.onnx")
    command = ["check", str(model), "--baseline", str(tmp_path / "b.json"), "--threads", "1"]
    with_images = [*command, "--labeled", str(folder)]
    assert main([*with_images, "--update"]) == 0
    baseline = json.loads((tmp_path / "b.json").read_text())
    assert baseline["accuracy"] == {"classes": ["blue", "green", "red"], "images": 6}
    assert baseline["items"]["accuracy_top1"] == {"accepted": 1.0, "tolerance": 0.005}
    assert main(with_images) == 0
    assert main(command) == 2
    assert "has accuracy_top1, which is not measured: give --labeled" in (capsys.readouterr().err)
    assert main([*command, "--partial"]) == 0
    guarded(model, gain=(10.0, 10.0, -10.0))  # blue is never found
    capsys.readouterr()
    assert main(with_images) == 1
    assert "top-1 accuracy on labeled images: 0.66" in capsys.readouterr().out
    guarded(model)
    write_image(folder / "red" / "more.png", ImageData(plain("red").pixels))
    assert main(with_images) == 2
    assert (
        "the accuracy was measured with different settings (images) than the baseline's: got 7"
        in (capsys.readouterr().err)
    )


EXPECTED = np.array([[3.0, 4.0, 0.0]], np.float32)
LOGITS_FIGURES = {"relative_error", "top1", "top5"}


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(Judge(), JUDGE, tmp_path_factory.mktemp("judge") / "judge.onnx")


def case(expected: np.ndarray) -> ReferenceCase:
    """Return a video whose sums over all pixels are `EXPECTED`, and its references."""
    film = np.zeros((1, 2, 3, 4, 4), np.float32)
    film[:, 0, :, 1, 2] = EXPECTED
    return ReferenceCase({"frames": film}, {"logits": expected})


def references(*expected: np.ndarray) -> References:
    return References(tuple(map(case, expected)), {"roles": {"logits": "logits"}})


@pytest.mark.full
def test_logits_have_the_figures_of_their_role(judge: Path) -> None:
    session = Session(judge, threads=1)
    other = np.array([[3.0, 2.5, 0.0]], np.float32)
    report = validate_against_references(session, references(EXPECTED, other), 2.0)
    same, turned = report.sizes
    assert same.figures == {"relative_error": 0.0, "top1": 1.0, "top5": 1.0}
    assert turned.figures["relative_error"] == pytest.approx(1.5 / np.hypot(3.0, 2.5))
    assert (turned.figures["top1"], turned.figures["top5"]) == (0.0, 1.0)
    assert report.figures == turned.figures
    document = report.as_dict()
    assert document.keys() >= LOGITS_FIGURES
    assert "psnr" not in document
    assert all(size.keys() >= LOGITS_FIGURES for size in document["sizes"])


def test_validate_and_check_of_logits(
    judge: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copy(judge, tmp_path))
    written = references(EXPECTED)
    write_references(model.with_suffix(".npz"), written.cases, written.meta)
    assert main(["validate", str(model)]) == 0
    printed = capsys.readouterr().out
    assert all(FIGURES[name].title in printed for name in LOGITS_FIGURES)
    assert "PSNR" not in printed
    baseline = tmp_path / "baseline.json"
    check = ["check", str(model), "--baseline", str(baseline)]
    assert main([*check, "--update"]) == 0
    assert (
        LOGITS_FIGURES
        <= json.loads(baseline.read_text())["items"].keys()
        <= list_guarded_items().keys()
    )
    turned = references(np.array([[4.0, 3.0, 0.0]], np.float32))
    write_references(model.with_suffix(".npz"), turned.cases, turned.meta)
    capsys.readouterr()
    assert main([*check, "--json"]) == 1
    items = json.loads(capsys.readouterr().out)["items"]
    failed = {item["item"] for item in items if item["state"] == "failed"}
    assert failed == {"max_abs", "relative_error", "top1", "references"}


@pytest.mark.parametrize("roles", [None, [], {"logits": 3}, {"logits": "magic"}, {"x": "logits"}])
def test_an_output_of_no_known_role_is_an_image(judge: Path, roles: Any) -> None:
    session = Session(judge, threads=1)
    report = validate_against_references(session, References((case(EXPECTED),), {"roles": roles}))
    assert report.figures == {"psnr": np.inf}


def test_images_and_logits_of_one_file() -> None:
    image = np.zeros((1, 3, 4, 4), np.float32)
    figures = reference_figures(
        [
            ("image", image, image + np.float32(0.1)),
            ("logits", EXPECTED, EXPECTED),
            ("logits", EXPECTED, 2 * EXPECTED),
        ]
    )
    expected = {"psnr": 20.0, "relative_error": 0.5, "top1": 1.0, "top5": 1.0}
    assert figures == pytest.approx(expected, abs=1e-3)
