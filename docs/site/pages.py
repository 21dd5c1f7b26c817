"""Pages of the site that are files of the repository outside docs/."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).parents[2]

COPIED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "RELEASING.md": "release.md",
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

COMMANDS = "commands.md"
"""The page that is made of the parsers of the commands."""

REFERENCE = "reference.md"
"""The page that is made of the public Python names and their docstrings."""
