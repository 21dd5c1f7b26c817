"""A transform is compared with its own fake-quantised network: one that rounds down fails.

That the right one passes is shown by `test_contributing`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import toy_network
import toy_transform
from toy_tree import NYSTRA, planted, run_in


@pytest.mark.full
def test_a_wrong_transform_fails(tmp_path: Path) -> None:
    tree = planted(tmp_path, toy_network.TOY, toy_transform.TOY)
    transform = tree / "export" / "build" / "toy" / "stepping.py"
    text = transform.read_text()
    assert "= np.round," in text
    transform.write_text(text.replace("= np.round,", "= np.floor,"))
    export = ("export", "toy.safetensors", "--precision", "toy", "--no-speed", "-o", "wrong.onnx")
    done = run_in(tree, toy_network.SAVE + NYSTRA, *export)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the largest difference is" in done.stderr
    assert not (tmp_path / "wrong.onnx").exists()
    failed = json.loads((tmp_path / "wrong.failed.json").read_text())["validation"]["against_torch"]
    assert not failed["passed"]
    assert set(failed["allowed_for"]) == {"twice what toy does"}
