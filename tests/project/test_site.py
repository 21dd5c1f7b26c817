"""The documentation as a site: its generated pages, its links and its search."""

import argparse
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headless import chromium, served
from nystra.cli.dispatch import build_parsers
from shared import ROOT

SITE = ROOT / "docs" / "site"


def part(name: str) -> ModuleType:
    """Return a module of docs/site, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", SITE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


commands, links, pages = part("commands"), part("links"), part("pages")
reference = part("reference")


def menu(nav: Any) -> Iterator[str]:
    for entry in nav:
        for below in entry.values():
            if isinstance(below, str):
                yield below
            else:
                yield from menu(below)


def test_every_page_is_in_the_menu_once() -> None:
    yaml = pytest.importorskip("yaml", reason="the extra docs is not installed")
    listed = list(menu(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    there = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert sorted(listed) == sorted(
        (*there, pages.COMMANDS, pages.REFERENCE, *pages.COPIED.values())
    )


def test_commands_are_those_of_the_parsers() -> None:
    _, parsers = build_parsers()
    text = commands.commands_text(parsers)
    for name, parser in parsers.items():
        section = text.split(f"## nystra {name}\n")[1].split("\n## ")[0]
        rows = [row for row in section.splitlines() if row.startswith("| `")]
        actions = [action for action in parser._actions if action.dest != "help"]
        assert len(rows) == len(actions)
        for action in actions:
            assert sum(all(f"`{flag}" in row for flag in action.option_strings) for row in rows)


def test_every_public_name_is_in_the_reference() -> None:
    text = reference.reference_text()
    for package in reference.PACKAGES:
        section = text.split(f"## {package}\n")[1].split("\n## ")[0]
        assert set(importlib.import_module(package).__all__) == set(
            re.findall(r"^### (\w+)$", section, re.MULTILINE)
        )
    assert "run(feeds: Mapping[str, Array], *, release: bool = False) -> dict[str, Array]" in text


def test_a_docstring_in_markdown() -> None:
    text = (
        "Add.\n\nArgs:\n    one: A ``number``\n        or two.\n    **more: Others.\n\n"
        "Returns:\n    The sum: of all,\n    in float32."
    )
    assert reference.docstring_text(text) == (
        "Add.\n\n**Args**\n\n- `one`: A `number`\n  or two.\n- `**more`: Others.\n\n"
        "**Returns**\n\nThe sum: of all,\nin float32."
    )


def test_how_an_argument_is_written() -> None:
    parser = argparse.ArgumentParser(description="Does <it>.", epilog="Exit codes: 0 | 1.")
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx", help="a file")
    parser.add_argument("-o", "--output", required=True, help="where to, 100%% of it")
    parser.add_argument("--attn", choices=("full", "nystra"), default="full", help="or %(default)s")
    parser.add_argument("--library", metavar="auto|none|FILE", help="f(x) < *5*")
    parser.add_argument("-q", action="store_true")
    assert commands.commands_text({"do": parser}).splitlines() == [
        "## nystra do",
        "",
        "Does &lt;it>.",
        "",
        "| arguments | |",
        "| --- | --- |",
        "| `MODEL.onnx ...` | a file |",
        "",
        "| options | |",
        "| --- | --- |",
        "| `-o`, `--output OUTPUT` | where to, 100% of it (required) |",
        "| `--attn {full,nystra}` | or full |",
        "| `--library auto|none|FILE` | f(x) &lt; &#42;5&#42; |",
        "| `-q` |  |",
        "",
        "Exit codes: 0 &#124; 1.",
    ]


HOMES = {
    "README.md": "index.md",
    "docs/serve.md": "serve.md",
    "docs/a.png": "a.png",
    "models/pretrained/w16.md": "models/w16.md",
    "plugins/body.py": "repository/plugins/body.py",
}
TITLES = {"serve.md": "A service", "index.md": "Start"}


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("docs/serve.md", "[card](../models/pretrained/w16.md#limits)", "models/w16.md#limits"),
        ("docs/serve.md", "[a](../plugins/body.py)", "repository/plugins/body.py"),
        ("docs/serve.md", "[a](../README.md#guard-it)", "index.md#guard-it"),
        ("docs/serve.md", "![a](a.png)", "![a](a.png)"),
        ("docs/serve.md", "[a](gone.md)", "[a](gone.md)"),
        ("docs/serve.md", "[a](https://b.c/d.md) and [b](#here)", "(https://b.c/d.md) and [b](#"),
        ("docs/serve.md", "see `docs/serve.md`", "see `docs/serve.md`"),
        ("models/pretrained/w16.md", "see `docs/serve.md`", "see [A service](../serve.md)"),
        ("README.md", "`docs/serve.md`, `docs/none.md`", "[A service](serve.md), `docs/none.md`"),
        ("README.md", "```text\n`docs/serve.md`\n```", "```text\n`docs/serve.md`\n```"),
    ],
)
def test_links_lead_to_pages_of_the_site(source: str, text: str, expected: str) -> None:
    assert expected in links.rewritten(text, source, HOMES, TITLES)


def test_files_that_a_page_links_to() -> None:
    text = "[a](../plugins/body.py)\n```\n[b](c.md)\n```\n[d](https://e.f) [g](h.md#i)"
    assert list(links.targets(text, "docs/serve.md")) == ["plugins/body.py", "docs/h.md"]


def test_flags_stay_whole() -> None:
    flag = '<span style="white-space: nowrap">--min-psnr</span>'
    assert links.whole_flags("a <code>x-y --min-psnr 5</code>") == f"a <code>x-y {flag} 5</code>"
    for block in ("<pre><code>run -q</code></pre>", "<pre><span></span><code>run -q</code></pre>"):
        assert links.whole_flags(block) == block


@pytest.mark.full
def test_the_search_box(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra docs is not installed")
    pytest.importorskip("selenium", reason="selenium is not installed")
    from selenium.webdriver.support.ui import WebDriverWait

    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(build, cwd=ROOT, env=quiet, check=True)
    for page in tmp_path.rglob("*.html"):
        elsewhere = re.findall(r"<(?:script|link|img)[^>]*https?://[^>]*>", page.read_text())
        assert elsewhere == [], page
    with served(tmp_path) as address, chromium() as browser:
        browser.get(address)
        box = browser.find_element("css selector", "input.md-search__input")
        box.click()
        box.send_keys("pseudoinverse")
        links = WebDriverWait(browser, 60).until(
            lambda one: one.find_elements("css selector", "a.md-search-result__link")
        )
        (ROOT / "build").mkdir(exist_ok=True)
        browser.save_screenshot(str(ROOT / "build" / "site.png"))
        assert len(links) > 1
        assert all(link.get_attribute("href").startswith(address) for link in links)
        links[0].click()
        WebDriverWait(browser, 60).until(lambda one: "pseudoinverse" in one.page_source.lower())
