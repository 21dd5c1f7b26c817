"""The table of the package's lines in CONTRIBUTING holds, so that growth is decided upon."""

from __future__ import annotations

from pathlib import Path

import pytest

import lines
from shared import PACKAGES

MARGIN = 0.03


def too_many(now: dict[str, int], table: dict[str, int]) -> list[str]:
    """Return the folders whose lines are not within the margin of the table."""
    return [name for name in now if abs(now[name] - table[name]) > MARGIN * table[name]]


def test_the_table_holds() -> None:
    now, table = lines.counted(), lines.stated(lines.PAGE.read_text(encoding="utf-8"))
    assert table.keys() == now.keys() == {*PACKAGES, "all"}
    assert not (off := too_many(now, table)), (
        f"the lines of {', '.join(off)} are not those of CONTRIBUTING within {MARGIN:.0%}: {now}; "
        "cut, or `python tests/project/lines.py --write` and say in the commit what for"
    )


def test_growth_and_cuts_are_noticed(tmp_path: Path) -> None:
    for folder in lines.FOLDERS:
        (tmp_path / folder / "part").mkdir(parents=True)
        (tmp_path / folder / "part" / "file.py").write_text("x = 1\n" * 100)
        (tmp_path / folder / "notes.md").write_text("not counted\n")
    page = f"Before.\n\n{lines._HEAD}| `core` | 7 |\n| all | 7 |\n\nAfter.\n"
    page = lines.written(page, lines.counted(tmp_path))
    table = lines.stated(page)
    assert table == dict.fromkeys(lines.FOLDERS, 100) | {"all": 700}
    assert page.startswith("Before.\n\n| folder")
    assert page.endswith("| all | 700 |\n\nAfter.\n")
    for count, expected in ((103, []), (104, ["core"]), (96, ["core"]), (130, ["core", "all"])):
        (tmp_path / "core" / "part" / "file.py").write_text("x = 1\n" * count)
        assert too_many(lines.counted(tmp_path), table) == expected
    with pytest.raises(ValueError, match="not enough values"):
        lines.stated("no table")
