"""Messages of the library name options in backticks; only the command line has flags."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from nystra.cli.dispatch import build_parsers
from nystra.cli.flags.option_flags import flags_by_name
from nystra.cli.main import main
from nystra.core.option import spell_names
from shared import ROOT

_LIBRARY = ("core", "plugins", "runtime", "deploy", "models", "export")
_FLAG = re.compile(r"(?<![\w-])(--[a-z][a-zA-Z-]*|-[a-z](?![\w-]))")
_NAME = re.compile(r"`([A-Za-z_]\w*)`")
_PAGE = re.compile(r"docs/[\w.#/-]*\w")
_PROGRAM = re.compile(
    r"\b(nystra|nystra-export|ray|pip|docker|tritonserver|cmake|ffmpeg|curl|tf2onnx)\b"
)
_OWN = {
    "runtime/engines/build.py": "the command line of trtexec",
    "runtime/engines/worker.py": "arguments of TensorRT's own loader",
}


@functools.cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return what `_texts` yields."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    """Yield the place and text of every string except docstrings and flags of options."""
    for part in _LIBRARY:
        for path in sorted((ROOT / part).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            file = path.relative_to(ROOT)
            left_out: set[int] = set()
            for node in ast.walk(tree):
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    left_out.add(id(node.value))
                if isinstance(node, ast.keyword) and node.arg == "flag":
                    left_out.add(id(node.value))
                if isinstance(node, ast.JoinedStr):
                    left_out |= {id(value) for value in node.values}
            for node in ast.walk(tree):
                if id(node) in left_out:
                    continue
                place = f"{file}:{getattr(node, 'lineno', 0)}"
                if isinstance(node, ast.JoinedStr):
                    parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
                    yield place, "".join(map(str, parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield place, node.value


@pytest.mark.full
def test_texts_name_pages_that_exist() -> None:
    pages = [(place, page[0]) for place, text in texts() for page in _PAGE.finditer(text)]
    assert len(pages) > 50
    assert [named for named in pages if not (ROOT / named[1]).is_file()] == []


@pytest.mark.full
def test_no_text_of_the_library_says_a_flag() -> None:
    """Except whole commands, which name their program, and pages for a shell."""
    found = [
        f"{place}: {text!r}"
        for place, text in texts()
        if place.partition(":")[0] not in _OWN
        for flag in _FLAG.finditer(text)
        if flag[0] != "-c" and not _PROGRAM.search(text[: flag.start()])
    ]
    assert not found, "\n".join(found)


@pytest.mark.full
def test_a_name_in_backticks_is_an_option() -> None:
    known = {name for parser in build_parsers()[1].values() for name in flags_by_name(parser)}
    found = {
        f"{place}: `{name}`"
        for place, text in texts()
        if place.partition(":")[0] not in _OWN
        for name in _NAME.findall(text)
        if name not in known
    }
    assert not found, "\n".join(sorted(found))


def test_a_face_spells_what_it_knows() -> None:
    text = "raise `max_memory`, or `other`: `max_memory` 4G"
    flags = {"max_memory": "--max-memory"}
    assert spell_names(text, flags.get) == "raise --max-memory, or `other`: --max-memory 4G"
    assert spell_names(text, str) == "raise max_memory, or other: max_memory 4G"


def test_the_command_line_writes_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "m.onnx", "-i", "a.png", "-o", "b.png", "--tile", "-1"]) == 2
    assert capsys.readouterr().err.startswith("error: --tile is -1, expected ")
    assert main(["export", "a.pth", "--attn", "nystra", "--shift-mask", "all"]) == 2
    assert capsys.readouterr().err.startswith("error: --shift-mask is 'all', expected ")
