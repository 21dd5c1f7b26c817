"""docs/python.md: its snippets run word for word, and it names the public functions for images."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from nystra.export.load.images import photographs
from nystra.runtime import read_image
from shared import ROOT

PAGE = (ROOT / "docs/python.md").read_text(encoding="utf-8")


def test_the_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(photographs()["chelsea"], tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for snippet in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S):
        exec(snippet, space)
    assert space["report"].passed  # type: ignore[attr-defined]
    names = ("restored", "large")
    restored, large = (read_image(tmp_path / f"{name}.png").pixels for name in names)
    assert restored.shape == large.shape == (320, 320, 3)
    assert np.abs(restored - large).mean() < 0.01, "with and without tiles"


def test_it_names_the_functions_for_images() -> None:
    for name in ("load", "export_model", "Session", "read_image", "write_image", "run_tiled",
                 "run_images", "validate_against_references", "validate_quality"):  # fmt: skip
        assert re.search(rf"\b{name}\(", PAGE), name
