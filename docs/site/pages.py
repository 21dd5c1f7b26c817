"""Pages of the site that come from files of the repository outside docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

MADE = {
    "index.md": (
        "",
        (
            "Install",
            "Run it",
            "Test it",
            "What do you have?",
            "Words",
            "Further reading",
            "Licence",
        ),
    ),
    "supported.md": ("What is supported", ()),
    "commands.md": ("The commands", ("Fill a hole",)),
    "elsewhere.md": ("Load the model elsewhere", ("Carry it to an edge box", "Guard it in CI")),
}
"""Page -> the section of README that is its head (README's own head where it is empty), others."""

_ROOT = Path(__file__).parents[2]

COPIED = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security_policy.md",
    **{
        f"{folder}/{path.name}": f"{place}/{path.name.lower()}"
        for folder, place in (
            ("studies/measurements", "measurements"),
            ("models/pretrained", "models"),
        )
        for path in sorted((_ROOT / folder).glob("*.md"))
    },
}
"""File of the repository -> the page that it is."""


def made_of_readme(readme: str) -> dict[str, str]:
    """Return the pages of `MADE`, in the words of README.

    Raises:
        ValueError: README has a section that no page has, or the other way round.
    """
    head, *parts = re.split(r"^## ", readme, flags=re.M)
    sections = {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}
    wanted = [name for page in MADE for name in sections_of(page)]
    if sorted(wanted) != sorted(sections):
        odd = ", ".join(sorted(set(wanted) ^ set(sections)))
        raise ValueError(f"{odd}: expected each section of README.md once in docs/site/pages.py")
    written = {}
    for page, (first, others) in MADE.items():
        begin = f"# {first}\n\n{sections[first]}" if first else head.strip()
        written[page] = "\n\n".join((begin, *(f"## {name}\n\n{sections[name]}" for name in others)))
    return written


def sections_of(page: str) -> Iterator[str]:
    """Yield the sections of README that a page of `MADE` has."""
    first, others = MADE[page]
    yield from filter(None, (first, *others))
