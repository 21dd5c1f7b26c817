"""What MkDocs cannot read off mkdocs.yml: pages that are made, and links between the pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import links
from commands import commands_text
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pages import COMMANDS, COPIED, REFERENCE

from nystra.cli.dispatch import build_parsers
from reference import reference_text

_HOMES: dict[str, str] = {}
"""File of the repository -> file of the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and what pages link to outside docs/."""
    root = Path(config.config_file_path).parent
    made = {page: (root / name).read_text(encoding="utf-8") for name, page in COPIED.items()}
    made[COMMANDS] = "# Commands\n\n" + commands_text(build_parsers()[1])
    made[REFERENCE] = "# Python reference\n\n" + reference_text()
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    _HOMES.update({f"docs/{file.src_uri}": file.src_uri for file in files})
    _HOMES.update(COPIED)
    for file in files.documentation_pages():
        for name in links.targets(file.content_string, _source(file.src_uri)):
            if name not in _HOMES and (root / name).is_file():
                _HOMES[name] = f"repository/{name}"
                files.append(File.generated(config, _HOMES[name], abs_src_path=str(root / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with links that are right on the site."""
    titles = dict(_titles(config.nav))
    return links.rewritten(markdown, _source(page.file.src_uri), _HOMES, titles)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page in which no line ends within the name of a flag."""
    return links.whole_flags(html)


def _source(page: str) -> str:
    """Return the file of the repository that a page comes from."""
    copied = {there: here for here, there in COPIED.items()}
    return copied.get(page, f"docs/{page}")


def _titles(nav: Any) -> Iterator[tuple[str, str]]:
    """Yield file and title of each page of the menu."""
    for entry in nav:
        for title, below in entry.items():
            if isinstance(below, str):
                yield below, title
            else:
                yield from _titles(below)
