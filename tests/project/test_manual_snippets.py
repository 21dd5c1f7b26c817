"""The snippets of the manual that have no other test, word for word."""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nystra.deploy
from exported_files import swinir_files
from native_nodes import library
from nystra.cli.main import main
from shared import ROOT


def blocks(page: str, language: str) -> list[str]:
    """Return the fenced blocks of a language of a page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``model.onnx`` and the other files of an export."""
    place = tmp_path_factory.mktemp("readme")
    shutil.copytree(swinir_files(tmp_path_factory), place, dirs_exist_ok=True)
    return place


def test_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain onnxruntime, onnxruntime with the operator library, and nystra give the same."""
    library()  # a snippet registers it
    monkeypatch.chdir(folder)
    shutil.copy("model.onnx", "x2.onnx")
    image = np.random.default_rng(0).random((1, 3, 20, 28), dtype=np.float32)
    plain, ours = blocks("first_export.md", "python")
    (registered,) = blocks("engines.md", "python")
    spaces: list[dict[str, Any]] = [{"image": image} for _ in range(3)]
    for snippet, space in zip((plain, ours, registered), spaces, strict=True):
        exec(snippet, space)
    got = spaces[2]["session"].run(None, {"input": image})[0]
    np.testing.assert_allclose(got, spaces[0]["output"], atol=1e-5)
    np.testing.assert_allclose(got, spaces[1]["output"], atol=1e-5)


def test_cpp(folder: Path, tmp_path: Path) -> None:
    root = os.environ.get("ONNXRUNTIME_ROOT")
    if not root:
        pytest.skip("ONNXRUNTIME_ROOT is not set: no onnxruntime headers and library to build with")
    (snippet,) = blocks("engines.md", "cpp")
    (tmp_path / "CMakeLists.txt").write_text(
        (ROOT / "examples/cpp/CMakeLists.txt").read_text().replace("upscale.cc", "snippet.cc")
    )
    (tmp_path / "snippet.cc").write_text(
        "#include <onnxruntime_cxx_api.h>\n#include <iostream>\n"
        "int main() {\n"
        f"{snippet}\n"
        "std::cout << session.GetInputCount() << std::endl;\n}\n"
    )
    for command in (["cmake", "-S", tmp_path, "-B", tmp_path], ["cmake", "--build", tmp_path]):
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
    shutil.copy(library(), folder / "libnystra_onnxruntime.so")
    ran = subprocess.run([tmp_path / "upscale"], cwd=folder, capture_output=True, text=True)
    assert ran.stdout == "1\n", ran.stderr


def test_the_gate_of_the_workflow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept as described on the page, then run the last step of the workflow."""
    monkeypatch.chdir(folder)
    commands = blocks("ci.md", "text")[0]
    (accept,) = re.findall(r"^(nystra check .* --update)", commands, re.M)
    (workflow,) = blocks("ci.md", "yaml")
    steps = re.findall(r"^ *- run: (.*)$", workflow, re.M)
    assert [step.split()[0] for step in steps] == ["pip", "nystra"]
    for line in (accept, steps[1]):
        assert main(shlex.split(line)[1:]) == 0
    assert (folder / "check.xml").exists()


def test_ray_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments are those of the function; `tests/deploy/test_ray_serve.py` runs services."""
    (snippet,) = blocks("serving.md", "python")
    taken = inspect.signature(nystra.deploy.ray_serve)
    bound: list[dict[str, Any]] = []

    def ray_serve(*models: Any, **options: Any) -> str:
        bound.append(taken.bind(*models, **options).arguments)
        return "application"

    served: list[tuple[Any, dict[str, Any]]] = []
    serve = SimpleNamespace(
        run=lambda application, **options: served.append((application, options))
    )
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(serve=serve))
    monkeypatch.setattr(nystra.deploy, "ray_serve", ray_serve)
    exec(snippet, {})
    assert bound == [{"models": "model.onnx", "replicas": (1, 8), "threads": 2}]
    assert served == [("application", {"route_prefix": "/"})]
