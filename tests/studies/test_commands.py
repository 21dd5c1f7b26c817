"""Every study is started by one command from the checkout."""

import ast
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Container, Iterator
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


@pytest.mark.parametrize("command", ["studies.device", "studies.serving.service"])
def test_a_command_says_what_it_takes(command: str) -> None:
    helps(command)


@pytest.mark.release
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_takes(command: str) -> None:
    helps(command)


def test_studies_import_what_nystra_has() -> None:
    """Also imports inside functions, since no test runs these commands to the end."""
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


def test_studies_use_what_other_studies_have() -> None:
    sources = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for path in (ROOT / "studies").rglob("*.py")
    }
    missing = [
        f"{name}: {module}.{attribute}"
        for name, tree in sources.items()
        for module, attribute in used(tree, sources)
        if attribute not in {*defined(sources[module]), "__file__"}
    ]
    assert not missing


def used(tree: ast.AST, modules: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield imports from some modules, and the attributes that are read of them."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if f"{node.module}.{alias.name}" in modules:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                elif str(node.module) in modules:
                    yield str(node.module), alias.name
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id in names:
            yield names[node.value.id], node.attr


def defined(module: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines, except those inside its functions."""
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.Import | ast.ImportFrom):
                yield from (alias.asname or alias.name for alias in node.names)


def test_an_attribute_that_a_study_does_not_have_is_found() -> None:
    tree = ast.parse("from studies.a import b\nfrom studies.a.b import c\nb.d()\nother.e()")
    assert list(used(tree, {"studies.a.b"})) == [("studies.a.b", "c"), ("studies.a.b", "d")]
    module = ast.parse("from x import a as b\nc = 1\ndef d(): e = 1")
    assert list(defined(module)) == ["b", "c", "d"]


def test_pages_name_commands_that_are_there() -> None:
    pages = [*(ROOT / "studies" / "measurements").glob("*.md"), *(ROOT / "docs").glob("*.md")]
    named = {
        name
        for page in (*pages, *(ROOT / "models" / "pretrained").glob("*.md"))
        for name in re.findall(r"python -m (studies[.\w]*)", page.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= {*COMMANDS, "studies.training"}


def test_commands_of_the_papers_pages_are_run_by_tests() -> None:
    """Those with parts, as `studies.paper errors`, by each part that the pages name."""
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "tests" / "studies").glob("*.py")
        if path.name != "test_commands.py"
    )
    missing = set()
    for page in ("papers", "paper", "quality", "quality_tables", "vit", "rvrt"):
        text = (ROOT / "studies" / "measurements" / f"{page}.md").read_text(encoding="utf-8")
        for module, part in re.findall(r"python -m (studies[.\w]*)(?: ([a-z]+)\b)?", text):
            study, name = module.rsplit(".", 1)
            named = f"{module} " in tests or f'"{module}"' in tests
            imported = re.search(rf"from {study} import .*\b{name}\b|from {module}\b", tests)
            parts = not part or f"{module} {part}" in tests or f'"{part}"' in tests
            if not (named or imported) or (module in PARTED and not parts):
                missing.add(f"{module} {part}")
    assert not missing


PARTED = ("studies.paper", "studies.vit.costs")
PYTEST_COMMANDS = sorted(
    {
        command
        for page in (ROOT / "studies" / "measurements").glob("*.md")
        for command in re.findall(r"`pytest ([^`]*)`", page.read_text(encoding="utf-8"))
    }
)


@pytest.mark.release
@pytest.mark.parametrize("command", PYTEST_COMMANDS)
def test_a_command_of_a_page_collects_a_test(command: str) -> None:
    arguments = [sys.executable, "-m", "pytest", *shlex.split(command), "-q", "--collect-only"]
    ended = subprocess.run(
        arguments, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
