"""JSON from other sources: limits, and one sentence for each refusal."""

import os
from pathlib import Path

import pytest

from nystra.core.errors import CheckpointError, NystraError
from nystra.core.files.reading import regular_file
from nystra.core.json_text import MAXIMUM_DEPTH, parse_json, read_json


def test_what_json_writers_write_is_read() -> None:
    text = '{"a": [1, -2.5e3, true, null, "\\u00e9 [{\\" ]"], "b": {"c": 999999999999999999}}'
    expected = {"a": [1, -2500.0, True, None, 'é [{" ]'], "b": {"c": 10**18 - 1}}
    assert parse_json(text, "it") == expected
    assert parse_json(text.encode(), "it") == expected
    deep = "[" * MAXIMUM_DEPTH + "]" * MAXIMUM_DEPTH
    assert parse_json(deep, "it") is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not valid JSON: Expecting value"),
        ("{", "is not valid JSON"),
        ("NaN", "the number is NaN, expected a finite one"),
        ('{"a": -Infinity}', "the number is -Infinity"),
        ("1e400", "the number 1e400 is too large"),
        ("1" + "0" * 400, "a whole number of 401 digits, expected 18 or fewer"),
        ("1" + "0" * 9000, "a whole number of 9001 digits"),
        ("[" * 65 + "]" * 65, "nested more than 64 levels deep"),
        ("[" * 1_000_000, "nested more than 64 levels deep"),
        ("[" + "[]," * 2_000_000 + "[]]", "it holds more than 2000000 values"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' occurs twice"),
        (b"\xff", "is not valid JSON"),
    ],
)
def test_what_no_writer_of_ours_writes_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(NystraError, match=message.replace("[", r"\[")):
        parse_json(text, "it")


def test_a_refusal_names_the_file_and_takes_the_class_wanted(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[1, 2")
    with pytest.raises(CheckpointError, match=r"the plan \S+a.json is not valid JSON"):
        read_json(path, "the plan", CheckpointError)
    with pytest.raises(NystraError, match=r"cannot read the plan \S+b.json: No such file"):
        read_json(tmp_path / "b.json", "the plan")


def test_what_is_no_regular_file_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_bytes(b"x")
    link.symlink_to(file)
    assert regular_file(link, "the model") == link
    for path, kind in ((pipe, "a pipe"), (tmp_path, "a folder"), ("/dev/zero", "a device")):
        with pytest.raises(NystraError, match=f"the model .* is {kind}, expected a regular file"):
            regular_file(path, "the model")
    for path, why in ((tmp_path / "none", "No such file"), (tmp_path / ("x" * 300), "too long")):
        with pytest.raises(CheckpointError, match=f"cannot read the model .*: .*{why}"):
            regular_file(path, "the model", CheckpointError)
