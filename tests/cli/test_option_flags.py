"""Flags generated from options: what each kind reads, prints and refuses."""

from __future__ import annotations

import argparse
import ast
from typing import Any

import pytest

from nystra.cli.dispatch import build_parsers
from nystra.cli.flags.option_flags import add_options, option_values
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.option import Option
from nystra.core.option_kinds import Bytes, File, FileOrWord, Grid, Number, Words
from nystra.core.ports.image_sizes import ImageSize, ImageSizes
from nystra.core.ports.input_shapes import InputShapes
from nystra.core.ports.port import ValueRanges, image_size
from nystra.export.options import ExportOptions, Shape
from shared import ROOT

BY_HAND = {
    "--version",
    "--attn",
    "--keep-full",
    "--set",
    "--backend-option",
    "--json",
    "--verbose",
    "--quiet",
}
"""Flags without an option: they are repeated, name a mechanism, or say how much is printed."""


def test_flags_are_made_from_options() -> None:
    by_hand = set()
    for path in sorted((ROOT / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                by_hand |= {text for text in texts if str(text).startswith("--")}
    assert by_hand == BY_HAND


def read(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_options(parser, ExportOptions)
    return option_values(parser.parse_args(arguments), ExportOptions)


def test_each_word_of_a_choice_may_have_its_flag() -> None:
    assert read()["functions"] == "attached"
    assert read("--no-functions")["functions"] == "none"
    assert read("--inline")["functions"] == "inline"
    with pytest.raises(SystemExit):
        read("--inline", "--no-functions")
    with pytest.raises(NystraError, match="`functions` is 'both', expected attached, none or inl"):
        ExportOptions(functions="both")  # type: ignore[arg-type]


def test_a_switch_that_is_on_has_a_flag_that_turns_it_off() -> None:
    assert read()["speed"] is True
    assert read("--no-speed")["speed"] is False


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Words((), ""), "sm86,sm89", ("sm86", "sm89")),
        (ImageSize(None, ""), "64x96", {"height": 64, "width": 96}),
        (ImageSizes(None, ""), "8x9,9x8", (image_size(8, 9), image_size(9, 8))),
        (FileOrWord("auto", "", ("auto", "none")), "none", "none"),
    ],
)
def test_what_is_shown_is_read(kind: Option, text: str, value: Any) -> None:
    assert kind.read("x", text) == value
    assert kind.accept("x", value) == value
    assert kind.show(value) == text


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Words((), ""), ("a", ""), "expected comma-separated words"),
        (Words((), ""), "a", "expected comma-separated"),
        (File(None, ""), 3, "`x` is 3, expected a path"),
        (FileOrWord("auto", "", ("auto", "none")), 3, "expected auto, none or a path"),
        (ImageSize(None, ""), {"height": 0, "width": 4}, "expected a height x width such as"),
        (ImageSize(None, ""), {"height": 8}, "expected a height x width such as"),
        (ImageSizes(None, ""), [], "or a comma-separated list of them"),
    ],
)
def test_what_is_refused(kind: Option, value: Any, message: str) -> None:
    with pytest.raises(NystraError, match=message):
        kind.accept("x", value)


NUMBERS = (Number, Bytes, Grid, ImageSize, ImageSizes, ValueRanges, InputShapes, Shape)
"""Kinds of options that read numbers."""


@pytest.mark.full
def test_numbers_that_are_not_plain_digits_are_refused() -> None:
    """By every option of every command, before anything is loaded."""
    checked = set()
    for parser in build_parsers()[1].values():
        for action in parser._actions:
            kind = getattr(getattr(action.type, "func", None), "__self__", None)
            if not isinstance(kind, NUMBERS):
                continue
            checked.add(action.dest)
            for text in ("9" * 5000, "\u0661", "\u0661x\u0661", "1_0", "nan", "inf", "1e400", ""):
                with pytest.raises(NystraError) as caught:
                    action.type(text)  # type: ignore[operator]
                assert "\n" not in str(caught.value)
                assert len(str(caught.value)) < 300
    assert checked >= {"threads", "tile", "sizes", "max_memory", "crf", "window_size", "timeout"}


def test_names_in_errors_of_usage_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "m.onnx", "\x1b[2J\u202e.onnx"]) == 2
    assert capsys.readouterr().err.endswith("arguments: \\x1b[2J\\u202e.onnx\n")


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "model.onnx"]) == 2
    assert "the following arguments are required: --baseline" in capsys.readouterr().err
    assert main(["serve", "model.onnx", "--port", "70000"]) == 2
    assert "--port is 70000, expected a whole number from 0 to 65535" in capsys.readouterr().err
