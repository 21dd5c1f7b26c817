"""A serving target that CONTRIBUTING's table adds: its flags, its folder and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import toy_target
from runtime_models import save_upscaler
from toy_tree import EXIT_CODES, planted, run_in

GIVEN = "deploy toy twice.onnx -o out --replicas 3 -t 16"
REFUSED = {
    GIVEN: "add --overwrite",
    "deploy toy m.onnx -o x --replicas 9": "--replicas is 9, expected a whole number from 1 to 8",
    "deploy triton m.onnx -o x --replicas 2": "--replicas does not apply to triton: it is for toy",
    "deploy toy m.onnx -o x --gpu": "--gpu does not apply to toy: it is for triton",
    "deploy toy m.onnx -o x --tile x": "--tile is 'x', expected a whole number of 0 or more",
}
"""Command, after the first one -> what it says."""


@pytest.mark.full
def test_its_folder_is_written_and_its_options_and_help_are_its_own(tmp_path: Path) -> None:
    save_upscaler(tmp_path / "twice.onnx")
    tree = planted(tmp_path, toy_target.TOY)
    commands = [f"{GIVEN} --json", *REFUSED, f"{GIVEN} --overwrite -q", "deploy --help"]
    done = run_in(tree, EXIT_CODES, *commands)
    report, end = json.JSONDecoder().raw_decode(done.stdout)
    assert report == {"folder": "out/twice", "files": ["serve.json", "twice.onnx"]}
    *codes, usage = done.stdout[end:].strip().split("\n", len(REFUSED) + 2)
    assert codes == ["0", *"2" * len(REFUSED), "0"], done.stdout + done.stderr
    for message in REFUSED.values():
        assert message in done.stderr
    assert not (tmp_path / "x").exists()
    written = json.loads((tmp_path / "out" / "twice" / "serve.json").read_text())
    assert written == {"replicas": 3, "tile": 16, "overwrite": True}
    usage = " ".join(usage.split())
    assert "toy: the toy server: a folder" in usage
    assert "--replicas N processes that answer, 1 to 8 (default: 2)" in usage
    assert "triton, toy, vapoursynth:" in usage, "what several have"
