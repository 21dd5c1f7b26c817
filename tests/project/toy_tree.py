"""What an author adds to nystra, as data, and a copy of the package with it.

Each toy (``TOY`` of the modules ``toy_*``) is one thing that CONTRIBUTING says how to add.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared import PACKAGES, ROOT

Replacements = tuple[tuple[str, str], ...]

_ALONE = """\
import sys
sys.meta_path[:] = [one for one in sys.meta_path if isinstance(one, type)]  # no editable install
sys.path.insert(0, sys.argv.pop(1))
import nystra
assert nystra.__file__.startswith(sys.path[0]), nystra.__file__
"""


@dataclass(frozen=True)
class Toy:
    """One added thing.

    Attributes:
        kind: What the heading in CONTRIBUTING calls it: ``Add a <kind>``.
        name: What ``<name>`` in a path stands for.
        files: Path -> text of a new file.
        rows: Path -> (text that is there once, text in its place), of a file that is there.
    """

    kind: str
    name: str
    files: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, Replacements] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """Every path that the author touches, but the first files of new packages."""
        return {path for path in self.files if "<name>/__init__" not in path} | self.rows.keys()

    @property
    def has_tests(self) -> bool:
        """Whether the author's tests are added too."""
        return any(path.startswith("tests/") for path in self.paths)

    def add_to(self, tree: Path) -> None:
        """Write the files and the rows into a copy of the package."""
        for path, text in self.files.items():
            file = tree / path.replace("<name>", self.name)
            assert not file.exists(), file
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".py" and not path.startswith("tests/"):
                (file.parent / "__init__.py").touch()
            file.write_text(text)
        for path, replacements in self.rows.items():
            text = (tree / path).read_text()
            for old, new in replacements:
                assert text.count(old) == 1, f"{path} has {text.count(old)} times {old!r}"
                text = text.replace(old, new)
            (tree / path).write_text(text)


def planted(folder: Path, *toys: Toy) -> Path:
    """Return a copy of the package in a folder, with toys and without native libraries.

    Where a toy has tests, the copy has those of the operators too.
    """
    tree = folder / "nystra"
    for part in PACKAGES:
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("*.so"))
    if any(toy.has_tests for toy in toys):
        for part in ("helpers", "plugins"):
            shutil.copytree(ROOT / "tests" / part, tree / "tests" / part)
    (tree / "__init__.py").write_text('__version__ = "0.1.0"\n')
    for toy in toys:
        toy.add_to(tree)
    return tree


def run_in(
    tree: Path, script: str, *arguments: object, **run: object
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, where ``nystra`` is the copy."""
    command = [sys.executable, "-c", _ALONE + script, str(tree.parent), *map(str, arguments)]
    done = subprocess.run(  # type: ignore[call-overload]
        command, cwd=tree.parent, capture_output=True, text=True, check=False, **run
    )
    return done  # type: ignore[no-any-return]


NYSTRA = "from nystra.cli.main import main\nsys.exit(main())\n"
"""A script: the command ``nystra``."""

EXIT_CODES = """\
from nystra.cli.main import main
for command in sys.argv[1:]:
    print(main(command.split()), flush=True)
"""
"""A script: several commands of ``nystra``, each an argument; it prints their exit codes."""


def table(kind: str, tests: bool = False) -> list[str]:
    """Return the paths of the table ``Add a <kind>`` of CONTRIBUTING, with or without tests."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.split(rf"^## Add an? {kind}\n", text, flags=re.M)[1].partition("\n## ")[0]
    paths = re.findall(r"^\| `([^`]+)`", section, re.M)
    return [path for path in paths if tests or not path.startswith("tests/")]
