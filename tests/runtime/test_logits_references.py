"""Files that give logits are compared with their references by the measure of logits."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frames_classifier import JUDGE, Judge, save
from nystra.cli.main import main
from nystra.runtime.checking.baseline import guarded_items
from nystra.runtime.checking.validation import validate_against_references
from nystra.runtime.metrics.measures import FIGURES, reference_figures
from nystra.runtime.model.references import ReferenceCase, References, write_references
from nystra.runtime.session import Session

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
        LOGITS_FIGURES <= json.loads(baseline.read_text())["items"].keys() <= guarded_items().keys()
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
