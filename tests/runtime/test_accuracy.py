"""The accuracy of a classifier: measured, printed, and checked against a baseline."""

import json
from pathlib import Path

import numpy as np
import pytest

from classifier_models import labeled, plain, save_classifier
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.ports.preprocessing import Preprocessing
from nystra.runtime import ImageData, Session, write_image, write_references
from nystra.runtime.model.references import ReferenceCase
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
