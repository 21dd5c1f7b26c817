"""The blocks of code of the manual run word for word."""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import nystra.deploy
from exported_files import swinir_files
from native_nodes import library
from nystra.cli.main import export_main, main
from nystra.export.load.images import photographs
from nystra.runtime import Session, read_image
from shared import ROOT


def page(name: str) -> str:
    """Return a page of the manual."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(name: str, languages: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page, each with its language."""
    return re.findall(rf"^```({languages})\n(.*?)^```", page(name), re.M | re.S)


def texts(name: str, language: str) -> list[str]:
    """Return the blocks of one language."""
    return [text for _, text in blocks(name, language)]


OWN = blocks("own.md", "python|bash")


def run_blocks(blocks: list[tuple[str, str]]) -> dict[str, object]:
    """Run blocks of the page; return what their Python defines."""
    space: dict[str, object] = {}
    for language, text in blocks:
        if language == "python":
            exec(text, space)
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            assert (export_main if program == "nystra-export" else main)(arguments) == 0, line
    return space


def operators(model: str) -> list[str]:
    """Return the types of the nystra nodes in a file."""
    return [node.op_type for node in onnx.load(model).graph.node if node.domain == "nystra"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``model.onnx`` and the other files of an export."""
    place = tmp_path_factory.mktemp("readme")
    shutil.copytree(swinir_files(tmp_path_factory), place, dirs_exist_ok=True)
    return place


def test_first_export_and_engines(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain onnxruntime, onnxruntime with the operator library, and nystra give the same."""
    library()  # a snippet registers it
    monkeypatch.chdir(exported)
    shutil.copy("model.onnx", "x2.onnx")
    image = np.random.default_rng(0).random((1, 3, 20, 28), dtype=np.float32)
    plain, ours = texts("first_export.md", "python")
    (registered,) = texts("engines.md", "python")
    spaces: list[dict[str, Any]] = [{"image": image} for _ in range(3)]
    for snippet, space in zip((plain, ours, registered), spaces, strict=True):
        exec(snippet, space)
    got = spaces[2]["session"].run(None, {"input": image})[0]
    np.testing.assert_allclose(got, spaces[0]["output"], atol=1e-5)
    np.testing.assert_allclose(got, spaces[1]["output"], atol=1e-5)


def test_cpp(exported: Path, tmp_path: Path) -> None:
    root = os.environ.get("ONNXRUNTIME_ROOT")
    if not root:
        pytest.skip("ONNXRUNTIME_ROOT is not set: no onnxruntime headers and library to build with")
    (snippet,) = texts("engines.md", "cpp")
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
    shutil.copy(library(), exported / "libnystra_onnxruntime.so")
    ran = subprocess.run([tmp_path / "upscale"], cwd=exported, capture_output=True, text=True)
    assert ran.stdout == "1\n", ran.stderr


@pytest.mark.full
def test_the_gate_of_the_workflow(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept as described on the page, then run the last step of the workflow."""
    monkeypatch.chdir(exported)
    commands = texts("ci.md", "text")[0]
    (accept,) = re.findall(r"^(nystra check .* --update)", commands, re.M)
    (workflow,) = texts("ci.md", "yaml")
    steps = re.findall(r"^ *- run: (.*)$", workflow, re.M)
    assert [step.split()[0] for step in steps] == ["pip", "nystra"]
    for line in (accept, steps[1]):
        assert main(shlex.split(line)[1:]) == 0
    assert (exported / "check.xml").exists()


def test_ray_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments are those of the function; `tests/deploy/test_ray_serve.py` runs services."""
    (snippet,) = (text for text in texts("serving.md", "python") if "ray_serve" in text)
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


@pytest.mark.full
def test_python_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(photographs()["chelsea"], tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    space = run_blocks(blocks("python.md", "python"))
    assert space["report"].passed  # type: ignore[attr-defined]
    names = ("restored", "large")
    restored, large = (read_image(tmp_path / f"{name}.png").pixels for name in names)
    assert restored.shape == large.shape == (320, 320, 3)
    assert np.abs(restored - large).mean() < 0.01, "with and without tiles"


def test_the_python_page_names_the_functions_for_images() -> None:
    text = page("python.md")
    for name in ("load", "export_model", "Session", "read_image", "write_image", "run_tiled",
                 "run_images", "validate_against_references", "validate_quality"):  # fmt: skip
        assert re.search(rf"\b{name}\(", text), name


def test_the_network_is_about_as_long_as_it_says() -> None:
    assert OWN[0][1].startswith("# mynet.py\n")
    lines = [line for line in OWN[0][1].splitlines() if line.strip()]
    assert 50 <= len(lines) <= 70


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder in which the commands of the page run, and its network is a module."""
    shutil.copy(photographs()["chelsea"], tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mynet", raising=False)
    Path("mynet.py").write_text(OWN[0][1])
    yield
    sys.modules.pop("mynet")


@pytest.mark.full
@pytest.mark.usefixtures("own_folder")
def test_the_command_line_of_own() -> None:
    run_blocks(OWN[1:3])
    assert read_image("large.png").pixels.shape == (320, 320, 3)


@pytest.mark.release
@pytest.mark.usefixtures("own_folder")
def test_all_of_own() -> None:
    space = run_blocks(OWN[1:])
    assert list(space["result"].source.resolved) == [  # type: ignore[attr-defined]
        f"network.blocks.{block}.attn" for block in range(2)
    ]
    image = read_image("photo.png").pixels.transpose(2, 0, 1)[None]
    assert operators("linear.onnx") == ["NystraWindowCluster"] * 2
    assert operators("full.onnx") == ["NystraWindowSoftmax"] * 2
    first, *others = (Session(f"{name}.onnx")(image) for name in ("mynet", "fromhere", "full"))
    for other in others:
        assert abs(first - other).max() < 1e-5
    assert Session("stated.onnx").metadata["license"] == "Apache-2.0"


@pytest.mark.full
def test_nothing_beside_the_file_is_imported(tmp_path: Path) -> None:
    """Started as by a user, in the folder of the file."""
    (tmp_path / "layers.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "net.py").write_text("import layers")
    (tmp_path / "a.pth").write_bytes(b"")
    command = [
        Path(sys.executable).with_name("nystra-export"),
        *("a.pth", "--module", "net.py:Net"),
    ]
    if not command[0].exists():
        pytest.skip("nystra-export is not installed beside this Python")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        "error: net.py imports layers, which is in the same folder: only that file is executed"
    )
