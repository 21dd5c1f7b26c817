"""Every study is started by one command from the checkout."""

import ast
import importlib
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from shared import ROOT

COMMANDS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for path in (ROOT / "studies").rglob("*.py")
    if "parse_args" in path.read_text(encoding="utf-8")
    and '__name__ == "__main__"' in path.read_text(encoding="utf-8")
)
STUDIES = {path.parent.name for path in (ROOT / "studies").glob("*/__init__.py")}


def helps(command: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", command, "--help"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "usage: " in ended.stdout


def test_each_study_has_a_command() -> None:
    assert {name.split(".")[1] for name in COMMANDS} == STUDIES


@pytest.mark.parametrize("command", ["studies.gpu.loads", "studies.serving.service"])
def test_a_command_says_what_it_takes(command: str) -> None:
    helps(command)


@pytest.mark.release
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_takes(command: str) -> None:
    helps(command)


def test_studies_import_what_nystra_has() -> None:
    """Imports inside functions too, since no command of these is run to its end by a test."""
    missing = []
    for path in (ROOT / "studies").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nystra"):
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    if not hasattr(module, alias.name) and not find_spec(
                        f"{node.module}.{alias.name}"
                    ):
                        missing.append(f"{path.name}: {node.module}.{alias.name}")
    assert not missing


def test_pages_name_commands_that_are_there() -> None:
    pages = [*(ROOT / "studies" / "measurements").glob("*.md"), *(ROOT / "docs").glob("*.md")]
    named = {
        name
        for page in (*pages, *(ROOT / "models" / "pretrained").glob("*.md"))
        for name in re.findall(r"python -m (studies[.\w]*)", page.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= {*COMMANDS, "studies.training"}
