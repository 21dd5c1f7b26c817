"""The tokens of the package by folder: a table in CONTRIBUTING.

python tests/project/tokens.py            # print them beside those of the table
python tests/project/tokens.py --write    # write them into CONTRIBUTING
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
FOLDERS = ("core", "cli", "export", "runtime", "plugins", "models", "deploy")
NATIVE_SUFFIXES = (".cc", ".cu", ".h")

_COUNTED = (tokenize.OP, tokenize.NAME, tokenize.NUMBER, tokenize.STRING)
_NATIVE_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_NATIVE_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[\w.]+|[^\w\s]')

_HEAD = "| folder | Python | C++ and CUDA |\n| --- | ---: | ---: |\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)+")
_ROW = re.compile(r"^\| `?(\w+)`? \| ([\d,]+) \| ([\d,]+) \|$", re.M)


def count_python(source: str) -> int:
    """Return the tokens of a module without comments and docstrings."""
    docstrings = {
        statement.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(body := getattr(node, "body", None), list)
        for statement in body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(t.type in _COUNTED and t.start[0] not in docstrings for t in tokens)


def count_native(source: str) -> int:
    """Return the tokens of a C++ or CUDA file without comments."""
    return len(_NATIVE_TOKEN.findall(_NATIVE_COMMENT.sub(" ", source)))


def count_folders(root: Path = ROOT) -> dict[str, tuple[int, int]]:
    """Return the Python and the native tokens of every folder, and of all together."""
    counts = {}
    for folder in FOLDERS:
        python = native = 0
        for file in (root / folder).rglob("*"):
            if file.suffix == ".py":
                python += count_python(file.read_text(encoding="utf-8"))
            elif file.suffix in NATIVE_SUFFIXES:
                native += count_native(file.read_text(encoding="utf-8"))
        counts[folder] = python, native
    python, native = (sum(column) for column in zip(*counts.values(), strict=True))
    return counts | {"all": (python, native)}


def read_table(page: str) -> dict[str, tuple[int, int]]:
    """Return the figures of the table in a page."""
    [table] = _TABLE.findall(page)
    return {
        folder: (int(python.replace(",", "")), int(native.replace(",", "")))
        for folder, python, native in _ROW.findall(table)
    }


def write_table(page: str, counts: dict[str, tuple[int, int]]) -> str:
    """Return the page with other figures in its table."""
    read_table(page)
    rows = ""
    for folder, (python, native) in counts.items():
        name = folder if folder == "all" else f"`{folder}`"
        rows += f"| {name} | {python:,} | {native:,} |\n"
    return _TABLE.sub(lambda _: _HEAD + rows, page)


def main(arguments: list[str]) -> None:
    """Print the figures, or write them."""
    page, counts = PAGE.read_text(encoding="utf-8"), count_folders()
    if arguments == ["--write"]:
        PAGE.write_text(write_table(page, counts), encoding="utf-8")
        return
    table = read_table(page)
    for folder, now in counts.items():
        for language, number, before in zip(
            ("Python", "native"), now, table.get(folder, (0, 0)), strict=True
        ):
            sys.stdout.write(f"{folder:8}{language:8}{number:9,}{number - before:+9,}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
