"""Every guarantee about untrusted files has a test, and the counts of tries agree."""

import re
from collections.abc import Iterator

from shared import ROOT

TESTS = ROOT / "tests"


def rows(page: str, head: str) -> Iterator[list[str]]:
    """Yield the cells of the rows of a page's table that begins with this head."""
    text = (ROOT / page).read_text(encoding="utf-8")
    table = text[text.index(f"| {head} |") :].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_every_promise_names_tests_that_exist() -> None:
    promises = list(rows("docs/security.md", "guarantee"))
    assert len(promises) > 10
    for promise, _, shown in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown)
        assert named, promise
        assert shown.count("`") == 2 * len(named), shown
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (file, test)


def test_every_attack_names_a_test_that_exists() -> None:
    files = [path.name for path in TESTS.rglob("test_*.py")]
    for *_, named in rows("studies/measurements/security.md", "area"):
        tests = re.findall(r"`(test_\w+\.py)`", named)
        assert tests, named
        for test in tests:
            assert files.count(test) == 1, test


def test_the_page_counts_what_was_tried() -> None:
    """The sum of the measured rows of each area; ``12, 4`` are two counts."""
    sums: dict[str, int] = {}
    for area, _, tries, *_ in rows("studies/measurements/security.md", "area"):
        counts = re.findall(r"\d+", tries.replace(",", "") if ", " not in tries else tries)
        sums[area] = sums.get(area, 0) + sum(map(int, counts))
    counted = {
        area: int(count.replace(",", "")) for area, count, *_ in rows("docs/security.md", "area")
    }
    assert counted == sums
