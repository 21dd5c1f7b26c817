"""The lines of the package by folder: a table in CONTRIBUTING.

python tests/project/lines.py            # print it
python tests/project/lines.py --write    # write it into CONTRIBUTING
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
FOLDERS = ("core", "cli", "export", "runtime", "plugins", "models", "deploy")
SUFFIXES = (".py", ".cc", ".cu", ".h")

_HEAD = "| folder | lines |\n| --- | ---: |\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)+")


def counted(root: Path = ROOT) -> dict[str, int]:
    """Return the lines of every folder's sources, and of all together."""
    lines = {
        folder: sum(
            file.read_bytes().count(b"\n")
            for file in (root / folder).rglob("*")
            if file.suffix in SUFFIXES
        )
        for folder in FOLDERS
    }
    return lines | {"all": sum(lines.values())}


def stated(page: str) -> dict[str, int]:
    """Return the figures of the table in a page."""
    [table] = _TABLE.findall(page)
    rows = re.findall(r"^\| `?(\w+)`? \| ([\d,]+) \|$", table.removeprefix(_HEAD), re.M)
    return {folder: int(figure.replace(",", "")) for folder, figure in rows}


def written(page: str, lines: dict[str, int]) -> str:
    """Return the page with other figures in its table."""
    stated(page)
    names = {name: name if name == "all" else f"`{name}`" for name in lines}
    rows = "".join(f"| {names[name]} | {number:,} |\n" for name, number in lines.items())
    return _TABLE.sub(lambda _: _HEAD + rows, page)


def main(arguments: list[str]) -> None:
    """Print the table, or write it."""
    page, lines = PAGE.read_text(encoding="utf-8"), counted()
    if arguments == ["--write"]:
        PAGE.write_text(written(page, lines), encoding="utf-8")
    else:
        before = stated(page)
        sys.stdout.writelines(
            f"{name:8}{number:8,}{number - before.get(name, 0):+8,}\n"
            for name, number in lines.items()
        )


if __name__ == "__main__":
    main(sys.argv[1:])
