"""The page of ``nystra-export --report``."""

import html
import re
from pathlib import Path

import numpy as np
import pytest

from nystra.cli.main import export_main
from nystra.export.report.page import _most_changed
from nystra.models.pretrained import checkpoint_path


def test_the_part_that_changes_most() -> None:
    difference = np.zeros((100, 90), np.float32)
    difference[61:70, 30:40] = 1
    top, left = _most_changed(difference, 2)
    assert top % 2 == left % 2 == 0
    assert difference[top : top + 40, left : left + 40].sum() == 90
    assert _most_changed(difference[:20, :30], 1) == (0, 0)


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
    assert re.search(r"against full\S+>\d\d\.\d dB mean", text)
    assert "layers.0.residual_group.blocks.{0, 1, 2, 3, 4, 5}.attn" in text
    assert not re.search(r"<script|https?://|<link", text)
