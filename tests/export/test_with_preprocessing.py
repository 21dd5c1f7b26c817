"""Files that prepare images themselves: `nystra-export --with-preprocessing`."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from classifier_models import COLORS, TOY, add_toy_classifier, labeled, plain
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.ports.preprocessing import Preprocessing, Resize
from nystra.export import ExportOptions
from nystra.export.load.images import calibration_feeds, validation_feeds
from nystra.export.load.stage import prepare
from nystra.export.load.with_preprocessing import with_preprocessing
from nystra.models import load
from nystra.runtime import Session, write_image
from nystra.runtime.tasks.classification.classifier import classifier_for

ONE = ["--static", "2x3x8x8", "--no-speed", "-q", "--attn", "nystra"]


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return add_toy_classifier(tmp_path, monkeypatch)


def test_what_the_network_promises_then(checkpoint: Path) -> None:
    options = ExportOptions(static=(2, 3, 8, 8), with_preprocessing=True)
    prepared = prepare(checkpoint, options, lambda _: None)
    facts = prepared.loaded.facts
    assert facts.inputs[0].lengths == {"batch": 2, "channels": 3}
    assert facts.preprocessing == TOY.within_graph()
    shapes = [feeds["input"].shape for feeds in prepared.feeds]
    assert shapes == [(2, 3, 18, 18), (2, 3, 21, 12), (2, 3, 5, 22)]
    assert [feeds["input"].shape for feeds in prepared.traced_feeds] == [(2, 3, 8, 8)] * 3
    plain_facts = prepared.traced.facts
    assert validation_feeds(plain_facts)[0]["input"].shape == (2, 3, 8, 8)
    sample = calibration_feeds(plain_facts, None)["coffee"]["input"]
    assert sample.shape == (2, 3, 8, 8)
    assert sample.min() < -0.1  # normalized, as the network is used to
    assert calibration_feeds(facts, None)["coffee"]["input"].min() >= 0


def test_what_cannot_be_written_into_a_graph(checkpoint: Path) -> None:
    loaded = load(checkpoint)
    for preprocessing, message in (
        (None, "has no preprocessing"),
        (Preprocessing(labels=COLORS), "has no preprocessing"),
        (Preprocessing(Resize((12,))), r"does not lead to the only size .* \(8, 8\)"),
        (Preprocessing(Resize((12, 12))), r"prepares images of \(12, 12\), height and width"),
    ):
        facts = replace(loaded.facts, preprocessing=preprocessing)
        with pytest.raises(NystraError, match=message):
            with_preprocessing(replace(loaded, facts=facts))


@pytest.mark.full
def test_the_file_takes_images_of_any_size(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare, whole = tmp_path / "bare.onnx", tmp_path / "whole.onnx"
    assert main(["export", str(checkpoint), "-o", str(bare), *ONE]) == 0
    assert main(["export", str(checkpoint), "-o", str(whole), *ONE, "--with-preprocessing"]) == 0
    first = onnx.load(whole).graph.node[0]
    assert first.name.startswith("preprocessing.")
    taken, given = classifier_for(Session(whole, threads=1)), classifier_for(Session(bare))
    assert Session(whole).inputs[0].shape == (2, 3, "height", "width")
    for size in ((40, 33), (8, 8), (5, 30), (300, 200)):
        pixels = plain("green", size).pixels
        np.testing.assert_allclose(taken(pixels), given(pixels), atol=1e-5)
    folder = labeled(tmp_path / "set", each=1)
    command = ["validate", str(whole), "--labeled", str(folder), "--json", "--threads", "1"]
    capsys.readouterr()
    assert main([*command, "--checkpoint", str(checkpoint)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["accuracy"]["file"].keys() == document["accuracy"]["network"].keys()
    assert document["sizes"][0]["shapes"]["input"] == [2, 3, 18, 18]
    write_image(tmp_path / "p.png", plain("blue", (50, 20)))
    assert main(["run", str(whole), "-i", str(tmp_path / "p.png"), "--top", "1"]) == 0
    again = ["export", str(checkpoint), "-o", str(whole), *ONE]
    assert main(again) == 2
    assert "with preprocessing True, now False" in capsys.readouterr().err
