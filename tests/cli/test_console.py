"""Output on the terminal: no control characters, one line per error."""

import argparse
import contextlib
import io
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest

from nystra.cli.console import echo, echo_error, print_json, print_table, steps
from nystra.cli.main import main
from nystra.core.plain_text import printable
from nystra.runtime import Session, progress
from runtime_models import nystra_metadata, save_upscaler

EVIL = "a\x1b[31mred\x1b]0;title\x07\r\u202egpj\x00\x9b2J\ud800"


def unsafe(text: str) -> set[str]:
    return {char for char in text if not char.isprintable() and char not in "\n\t"}


def test_control_characters_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable("plain é 中 😀\t1") == "plain é 中 😀\t1"
    assert printable("a\xa0b") == "a b"
    assert printable("\x1b[0m\u202e\ud800") == r"\x1b[0m\u202e\ud800"
    echo(f"one\n{EVIL}")
    echo_error(f"error: one\ntwo\r\nthree\x85{EVIL}")
    print_table([("head", "b"), (EVIL, "x"), ("line\nbreak", "y")])
    said = capsys.readouterr()
    assert not unsafe(said.out + said.err)
    assert said.err.count("\n") == 1
    assert len(said.out.splitlines()) == 4
    assert r"line\nbreak" in said.out


@pytest.mark.full
def test_a_long_step_is_told_while_a_trace_redirects_the_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LONG", 0.5)
    with steps(argparse.Namespace(verbose=0, quiet=False)) as show:
        show("trace")
        with contextlib.redirect_stderr(io.StringIO()):
            time.sleep(2.5)
    assert "trace (" in capsys.readouterr().err


def test_no_line_is_a_command_of_a_service_that_runs_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GitHub's runner reads lines that begin with ``::``, and ``##[...]`` anywhere."""
    commands = ("::set-output name=a::b", "##[stop-commands]x", "##vso[task.setvariable]x")
    for command in commands:
        echo(command)
        echo(f" \t{command}")
        echo_error(f"error: {command}")
        print_table([("", "b"), ("", command)])
        print_json({"a": command})
    text = f"x\n{commands[0]}"
    model = save_upscaler(tmp_path / "m.onnx", metadata={commands[0]: commands[1], "a": text})
    assert main(["inspect", str(model)]) == 0
    said = capsys.readouterr()
    for line in (said.out + said.err).splitlines():
        assert not line.lstrip().startswith("::")
        assert not re.search(r"##\w*\[", line)
    echo("### 1. a :: b # c")
    assert capsys.readouterr().out == "### 1. a :: b # c\n"
    print_json(list(commands))
    assert json.loads(capsys.readouterr().out) == list(commands)


def test_metadata_and_names_do_not_write_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = EVIL[:-1]  # a file of ONNX holds no half characters
    keys = {evil: evil, "license": evil, "architecture": evil, "nystra.task": evil}
    plan = json.dumps({"sites": {evil: {"mechanism": evil}}, "default": {"mechanism": "full"}})
    for more in (keys, {"nystra.range": evil}, {"nystra.attention": plan}, {"scale": evil}):
        model = save_upscaler(tmp_path / "m\x1b[2J.onnx", metadata=nystra_metadata(**more))
        for command in (["inspect"], ["validate"], ["bench", "--runs", "1", "--seconds", "0.01"]):
            main([command[0], str(model), *command[1:]])
            said = capsys.readouterr()
            assert not unsafe(said.out + said.err), command
    main(["run", str(model), "-i", f"{tmp_path}/{evil[:-8]}.png", "-o", str(tmp_path / "o.png")])
    assert not unsafe(capsys.readouterr().err)


def test_input_of_another_byte_order_is_the_same_input(tmp_path: Path) -> None:
    session = Session(save_upscaler(tmp_path / "m.onnx"), threads=1)
    image = np.random.default_rng(0).random((1, 3, 4, 5)).astype(np.float32)
    expected = session(image)
    for order in (">", "<"):
        for kind in ("f2", "f4", "f8"):
            other = image.astype(np.float16).astype(np.dtype(kind).newbyteorder(order))
            np.testing.assert_array_equal(
                session(other), session(image.astype(np.float16).astype(np.float32))
            )
        np.testing.assert_array_equal(session(image.astype(f"{order}f4")), expected)


@pytest.mark.parametrize("plan", ["[]", "5", '{"sites": 3}', "{", "[" * 99])
def test_a_plan_that_is_none_is_one_line(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = nystra_metadata(**{"nystra.attention": plan})
    model = save_upscaler(tmp_path / "m.onnx", metadata=metadata)
    assert main(["inspect", str(model)]) == 2
    said = capsys.readouterr().err
    assert "the metadata entry nystra.attention is no" in said
    assert said.count("\n") == 1
