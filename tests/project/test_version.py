"""The version is written in pyproject.toml; all other places agree."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from importlib.metadata import version

import pytest

import nystra
from native_nodes import library
from nystra.cli.main import main
from nystra.plugins.library import library_path
from shared import ROOT

VERSION = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)[1]  # type: ignore[index]
SPELLED = {
    "CITATION.cff": r"version: (\d\S*)\nlicense",
    "docs/ci.md": r"nystra-(\d[\d.]*)-py3-none",
    "deploy/containers/kubernetes.yaml": r"image: \S+/nystra:(\S+)",
    "docs/compatibility.md": r"this version, (\d[\d.]*),",
    "RELEASING.md": r"releases/nystra-(\d[\d.]*)",
}
"""File -> how it spells the version."""


def test_the_installed_package_has_it() -> None:
    assert nystra.__version__ == version("nystra") == VERSION, "nystra has to be installed again"


def test_the_commands_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.split() == ["nystra", nystra.__version__]


def test_the_operator_library_has_it() -> None:
    library()
    loaded = ctypes.CDLL(str(library_path("nystra_cpu")))
    loaded.nystra_cpu_version.restype = ctypes.c_char_p
    assert loaded.nystra_cpu_version().decode() == nystra.__version__


@pytest.mark.parametrize("file", SPELLED)
def test_pages_and_configurations_spell_it(file: str) -> None:
    spelled = re.findall(SPELLED[file], (ROOT / file).read_text(encoding="utf-8"))
    assert spelled, file
    assert set(spelled) == {VERSION}


def test_packages_of_other_registries_have_it() -> None:
    listed = ["git", "ls-files", "*package.json"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.split():
        package = json.loads((ROOT / name).read_text(encoding="utf-8"))
        assert package.get("version", VERSION) == VERSION, name


def test_the_changelog_begins_with_it() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(r"^## (\S+)( \(unreleased\))?$", text, re.M)
    assert heading is not None
    assert heading[1] == VERSION
