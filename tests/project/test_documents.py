"""README and CONTRIBUTING agree with the repository."""

import importlib.machinery
import importlib.util
import re
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import PurePosixPath

import pytest

from nystra.cli.main import main
from nystra.deploy.registry import TARGETS
from nystra.export.attention.registry import MECHANISMS
from nystra.models.registry import ARCHITECTURES
from nystra.plugins.operators import OPERATORS
from nystra.runtime.backends import backend_names
from nystra.runtime.tasks.registry import TASKS
from shared import PACKAGES, ROOT
from test_security_page import rows
from toy_tree import table

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("heading", "target"), [("Run it", "demo"), ("Test it", "test")])
def test_readme_has_one_command_under_each_heading(heading: str, target: str) -> None:
    command = [sys.executable, str(ROOT / ".ci" / "readme_block.py"), heading]
    block = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert block == f"make {target}\n"
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    assert section.count("```bash") == 1


def test_the_steps_by_hand_are_those_of_make() -> None:
    """README's steps by hand are exactly those of make."""
    section = README.split("## Run it\n")[1].split("\n## ")[0]
    (by_hand,) = re.findall(r"```text\n(.*?)```", section, re.S)
    shown = subprocess.run(
        ["make", "--no-print-directory", "-n", "-B", "demo", "PYTHON=python3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    made = [step.replace(".venv/bin/python -m ", "").replace(".venv/bin/", "") for step in shown]
    assert made[0] == "test -d .venv || python3 -m venv .venv"
    note, install, touch, *steps, echo = filter(None, made[1:])
    assert "make demo TORCH_INDEX=URL" in note
    assert by_hand.splitlines()[1:] == [install, *steps]
    assert touch == "touch .venv/installed"
    assert "out/chelsea_x2.png" in echo
    assert "out/sheet.png" in echo


def test_readme_is_short() -> None:
    """A newcomer reads it whole; what takes longer has a page."""
    assert len(README.split()) < 1400


def test_every_command_of_the_manual_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    names = "export|run|serve|validate|inspect|bench|check|build|deploy"
    pages = [README, *(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))]
    lines = [
        line
        for page in pages
        for line in re.findall(rf"^(nystra(?:-export| (?:{names})) .*)$", page, re.M)
    ]
    assert len(lines) >= 40
    usages: dict[str, str] = {}
    for line in lines:
        program, *arguments = shlex.split(line, comments=True)
        command = arguments[0] if program == "nystra" else "export"
        if command not in usages:
            assert main([command, "--help"]) == 0
            usages[command] = capsys.readouterr().out
        for argument in arguments:
            if argument.startswith("-") and argument != "-":
                assert re.search(rf"(?<![\w-]){re.escape(argument)}(?![\w-])", usages[command]), (
                    line
                )


def test_readme_names_every_network_and_no_other() -> None:
    section = README.split("## What is supported\n")[1].split("\n## ")[0]
    names = re.findall(r"^\| (\w[\w -]*) \|", section, re.M)
    networks = [name.lower().replace(" ", "_") for name in names[: names.index("mechanisms")]]
    assert networks == [row.name for row in ARCHITECTURES]


def test_contributing_names_files_that_exist() -> None:
    """Every path of the tables exists for everything that is registered."""
    variants = {"window_overlap", "window_cosine", "window_covariance"}  # kernels of others
    operators = [name for name in OPERATORS.values() if name not in variants]
    names = {
        "operator": operators,
        "network": [row.name for row in ARCHITECTURES],
        "mechanism": [name for name in MECHANISMS if name != "as_trained"],  # nothing to compute
        "backend": [name.replace("-", "_") for name in backend_names()],
        "task": [row.summary().__name__.split(".")[3] for row in TASKS],
        "transform": ["precision"],  # one folder for all
        "serving target": [target.name for target in TARGETS],
    }
    assert re.findall(r"^## Add an? (serving target|\w+)$", CONTRIBUTING, re.M) == list(names)
    for kind, registered in names.items():
        paths = table(kind, tests=kind == "operator")
        assert paths, kind
        for path in paths:
            with_kernel = ("pinv", "patch_match") if "/cuda/" in path else registered
            for name in with_kernel:
                file = ROOT / path.replace("<name>", name)  # a module may be a folder, too
                assert file.exists() or file.with_suffix("").is_dir(), (path, name)
    for path in re.findall(r"`((?:export|models|plugins|runtime|tests)/[^`<*]+)`", CONTRIBUTING):
        assert (ROOT / path).exists(), path


def test_pages_name_files_that_exist() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    pages += (ROOT / "studies" / "measurements").glob("*.md")
    folders = "cli|core|deploy|docs|export|models|plugins|runtime|studies|tests"
    named = re.compile(rf"(?<![\w/])(?:{folders})/[\w/]+\.(?:cc|cu|h|json|md|png|py)\b")
    for page in pages:
        for path in named.findall(page.read_text(encoding="utf-8")):
            assert (ROOT / path).exists(), (page.name, path)


def test_no_page_holds_a_control_character() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("studies/measurements/*.md")]
    assert len(pages) > 20
    found = [page.name for page in pages if re.search(r"[\x00-\x08\x0b-\x1f]", page.read_text())]
    assert not found


def test_installed_files_are_the_tracked_ones() -> None:
    try:
        installed = {str(path) for path in files("nystra") or []}
    except PackageNotFoundError:
        pytest.skip("nystra is not installed here")
    kept = {path for path in installed if path.startswith("nystra/") and "__pycache__" not in path}
    if "nystra/cli/main.py" not in kept:
        pytest.skip("nystra is installed in place")
    listed = subprocess.run(
        ["git", "ls-files", *PACKAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("no git checkout")
    unpackaged = ("deploy/containers/", "plugins/csrc/", "plugins/cmake/", "plugins/CMakeLists.txt")
    expected = {
        str(PurePosixPath("nystra", path))
        for path in listed.stdout.split()
        if not path.startswith(unpackaged)
    }
    expected |= {"nystra/__init__.py", "nystra/py.typed"}
    libraries = {path for path in kept if path.endswith(".so")}
    names = ("cpu", "onnxruntime", "onnxruntime_cuda", "trt", "trt_register10", "trt_register11")
    assert libraries <= {f"nystra/plugins/libnystra_{name}.so" for name in names}
    assert kept - libraries == expected


def built_platforms() -> list[str]:
    loader = importlib.machinery.SourceFileLoader("wheels_script", str(ROOT / ".ci/wheels"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # where dataclasses look for it
    try:
        loader.exec_module(module)
    finally:
        del sys.modules[loader.name]
    return list(module.PLATFORMS)


def test_every_platform_has_a_row_with_its_test() -> None:
    table = list(rows("studies/measurements/platforms.md", "platform"))
    assert [row[0].split("`")[1] for row in table if "`" in row[0]] == built_platforms()
    for platform, *_, agrees, tested in table:
        files = re.findall(r"`([\w/.]+)(?:::\w+)?`", tested)
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tested)
        assert files, platform
        assert all((ROOT / file).is_file() for file in files), platform
        assert named or ".ci/fresh_root" in files or agrees in ("untried", ""), platform
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (file, test)
