"""The table of the package's tokens in CONTRIBUTING holds, so that growth is decided upon."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tokens
from shared import PACKAGES

MARGIN = 0.03


def find_changes(now: dict[str, tuple[int, int]], table: dict[str, tuple[int, int]]) -> list[str]:
    """Return the folders whose tokens are not within the margin of the table."""
    changed = []
    for folder, counts in now.items():
        pairs = zip(counts, table[folder], strict=True)
        if any(abs(count - before) > MARGIN * before for count, before in pairs):
            changed.append(folder)
    return changed


@pytest.mark.full
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 splits f-strings into tokens")
def test_the_table_holds() -> None:
    now, table = tokens.count_folders(), tokens.read_table(tokens.PAGE.read_text(encoding="utf-8"))
    assert table.keys() == now.keys() == {*PACKAGES, "all"}
    assert not (changed := find_changes(now, table)), (
        f"the tokens of {', '.join(changed)} are not those of CONTRIBUTING within {MARGIN:.0%}: "
        f"{now}; `python tests/project/tokens.py --write`, and say in the commit what they are for"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Of the module."""\nx = 1  # a comment\n', 3),
        ('def f(a):\n    """Of the function."""\n    return a\n', 8),
        ("", 0),
    ],
)
def test_python_tokens(source: str, expected: int) -> None:
    assert tokens.count_python(source) == expected


def test_native_tokens() -> None:
    assert tokens.count_native('int x = 1;  // a comment\n/* two\nlines */ f("a b");') == 10


def test_growth_and_cuts_are_noticed(tmp_path: Path) -> None:
    for folder in tokens.FOLDERS:
        (tmp_path / folder / "part").mkdir(parents=True)
        (tmp_path / folder / "part" / "file.py").write_text("x = 1\n" * 100)
        (tmp_path / folder / "part" / "file.cc").write_text("a;\n" * 50)
        (tmp_path / folder / "notes.md").write_text("not counted\n")
    page = f"Before.\n\n{tokens._HEAD}| `core` | 7 | 0 |\n| all | 7 | 0 |\n\nAfter.\n"
    page = tokens.write_table(page, tokens.count_folders(tmp_path))
    table = tokens.read_table(page)
    assert table == dict.fromkeys(tokens.FOLDERS, (300, 100)) | {"all": (2100, 700)}
    assert page.startswith("Before.\n\n| folder")
    assert page.endswith("| all | 2,100 | 700 |\n\nAfter.\n")
    for lines, expected in ((103, []), (104, ["core"]), (96, ["core"]), (130, ["core", "all"])):
        (tmp_path / "core" / "part" / "file.py").write_text("x = 1\n" * lines)
        assert find_changes(tokens.count_folders(tmp_path), table) == expected
    with pytest.raises(ValueError, match="not enough values"):
        tokens.read_table("no table")
