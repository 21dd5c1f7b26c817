"""The accepted outputs in a baseline: ``nystra check`` says how much worse a file is."""

import json
from pathlib import Path

import numpy as np
import pytest

from checked_upscaler import check, damage, save_checked_upscaler
from nystra.runtime.model.references import ReferenceCase, read_references, write_references
from runtime_models import nystra_metadata, save_upscaler


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_checked_upscaler(tmp_path)


def test_accepted_outputs_say_how_much_worse_a_file_is(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(model, "--update", "-q") == 0
    images = [case.inputs["input"] for case in read_references(model.with_suffix(".npz")).cases]
    damage(model, 1.01)
    worse = [
        ReferenceCase({"input": x}, {"output": 1.01 * x.repeat(2, 2).repeat(2, 3)}) for x in images
    ]
    write_references(model.with_suffix(".npz"), worse, {"tolerances": [1e-4, 2e-4]})
    assert check(model, "--json") == 1
    found = {item["item"]: item for item in json.loads(capsys.readouterr().out)["items"]}
    assert found["max_abs"]["state"] == "passed", "its references were made by the worse file"
    assert found["outputs"]["state"] == "failed"
    smallest = min(images, key=np.size)
    assert found["outputs"]["measured"] == pytest.approx(0.01 * smallest.max(), rel=1e-3)
    expected = -10 * np.log10(np.mean((0.01 * smallest.astype(np.float64)) ** 2))
    assert f"psnr {expected:.4g} dB against the accepted ones" in found["outputs"]["message"]


def test_accepted_outputs_of_another_scale_are_a_failure_that_says_so(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(model, "--update", "-q") == 0
    save_upscaler(model, 3, metadata=nystra_metadata(3))
    image = np.ones((1, 3, 8, 8), np.float32)
    case = ReferenceCase({"input": image}, {"output": np.ones((1, 3, 24, 24), np.float32)})
    write_references(model.with_suffix(".npz"), [case], {"tolerances": [0.5]})
    assert check(model) == 1
    assert "outputs: cannot be compared with the accepted ones: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (3, "outputs is 3, expected a text"),
        ("not base64!", "outputs is no base64 text"),
        ("AAAA", "outputs are damaged"),
        ("A" * (1 << 21), "expected a text of at most"),
    ],
)
def test_damaged_accepted_outputs_are_refused(
    model: Path, text: object, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(model, "--update", "-q") == 0
    baseline = model.with_name("baseline.json")
    document = json.loads(baseline.read_text())
    baseline.write_text(json.dumps({**document, "outputs": text}))
    assert check(model) == 2
    assert words in capsys.readouterr().err


def test_large_outputs_are_not_recorded(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nystra.runtime.checking.accepted_outputs.MAXIMUM_BYTES", 100)
    assert check(model, "--update", "-q") == 0
    assert "outputs" not in json.loads(model.with_name("baseline.json").read_text())
    capsys.readouterr()
    assert check(model, "--json") == 0
    found = {item["item"]: item for item in json.loads(capsys.readouterr().out)["items"]}
    assert found["outputs"]["state"] == "skipped"
