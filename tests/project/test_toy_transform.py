"""A transform is compared with its own fake-quantized network: one that rounds down fails.

That the right one passes is shown by `test_contributing`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import save_file

import toy_transform
from small_swinir import state_of
from toy_tree import EXIT_CODES, planted, run_in


@pytest.mark.full
def test_its_parameter_takes_part_and_a_wrong_transform_fails(tmp_path: Path) -> None:
    tree = planted(tmp_path, toy_transform.TOY)
    save_file(state_of(), tmp_path / "tiny.safetensors")
    messages = {
        "toy:steps=1": "`steps` is 1, expected a whole number from 2 to 1024",
        "toy:block=2": "--precision toy has no parameter 'block'; it has steps",
        "fp16:steps=2": "--precision fp16 has no parameter 'steps'; it has none",
    }
    export = "export tiny.safetensors --no-speed -q -o a.onnx --precision"
    validate = "validate a.onnx --checkpoint tiny.safetensors -q"
    commands = [*(f"{export} {text}" for text in messages), f"{export} toy:steps=24", validate]
    done = run_in(tree, EXIT_CODES, *commands, "export --help")
    *codes, usage = done.stdout.split("\n", len(commands))
    assert codes == [*"222", "0", "0"], done.stdout + done.stderr
    for message in messages.values():
        assert message in done.stderr
    assert "--precision toy|fp32|fp16" in usage
    words = " ".join(usage.split())
    assert "toy:steps=N sets steps: weights in steps of one part of so many, 2 to 1024" in words
    other = tree / "export" / "validate" / "reference_run.py"
    text = other.read_text()
    assert ".with_parameters(" in text
    other.write_text(text.replace(".with_parameters(", ".with_parameters('' and "))
    transform = tree / "export" / "graph" / "toy" / "stepping.py"
    text = transform.read_text()
    assert "= np.round," in text
    transform.write_text(text.replace("= np.round,", "= np.floor,"))
    wrong = "export tiny.safetensors --no-speed -q -o wrong.onnx --precision toy"
    done = run_in(tree, EXIT_CODES, validate, wrong)
    assert done.stdout.split() == ["1", "1"], "the file's own parameter takes part"
    assert "the largest difference is" in done.stderr
    assert not (tmp_path / "wrong.onnx").exists()
    failed = json.loads((tmp_path / "wrong.failed.json").read_text())["validation"]["against_torch"]
    assert not failed["passed"]
    assert set(failed["allowed_for"]) == {"twice the error of toy"}
