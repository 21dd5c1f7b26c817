"""A transform is held to its own yardstick: one that does something else fails."""

from __future__ import annotations

from pathlib import Path

import toy_network
import toy_transform
from toy_tree import NYSTRA, planted, run_in


def test_a_wrong_transform_fails(tmp_path: Path) -> None:
    tree = planted(tmp_path, toy_network.TOY, toy_transform.TOY)
    export = ("export", "toy.safetensors", "--precision", "toy", "--no-speed", "-o")
    done = run_in(tree, toy_network.SAVE + NYSTRA, *export, "right.onnx")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "twice what toy does" in done.stdout
    transform = tree / "export" / "graph" / "toy" / "stepping.py"
    text = transform.read_text()
    transform.write_text(text.replace("= np.round,", "= np.floor,"))
    done = run_in(tree, NYSTRA, *export, "wrong.onnx")
    assert done.returncode == 1, done.stdout + done.stderr
    assert not (tmp_path / "wrong.onnx").exists()
    assert (tmp_path / "wrong.failed.json").is_file()
