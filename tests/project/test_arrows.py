"""Which package may import which, from the source."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from shared import ROOT

ALLOWED = {
    "cli": {"cli", "core", "deploy", "export", "models", "plugins", "runtime"},
    "export": {"export", "core", "models", "plugins", "runtime"},
    "deploy": {"deploy", "core", "runtime", "plugins"},
    "models": {"models", "core", "plugins"},
    "runtime": {"runtime", "core", "plugins"},
    "plugins": {"plugins", "core"},
    "core": {"core"},
}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield every module that a file imports, absolute below nystra, and whether at top level."""
    package = ["nystra", *path.relative_to(ROOT).parts[:-1]]
    tree = ast.parse(path.read_text())
    top = set(tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node in top
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "nystra":
                for name in node.names:
                    yield f"nystra.{name.name}", node in top
            else:
                yield module, node in top


@pytest.mark.parametrize("folder", sorted(ALLOWED))
def test_arrows(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        for module, _ in imports(path):
            parts = module.split(".")
            if parts[0] == "nystra" and parts[1] != "__version__":
                assert parts[1] in ALLOWED[folder], f"{path} imports {module}"


def parts(package: Path) -> dict[str, set[str]]:
    """Return which parts of a package (folders and files) each part imports."""
    known = {path.stem for path in package.iterdir() if path.is_dir() or path.suffix == ".py"}
    graph: dict[str, set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        own = path.relative_to(package).with_suffix("").parts[0]
        for module, _ in imports(path):
            names = module.split(".")
            if names[:2] == ["nystra", package.name] and len(names) > 2 and names[2] in known:
                graph.setdefault(own, set()).add(names[2])
    return {own: others - {own} for own, others in graph.items()}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return parts that import one another in a cycle, or []."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("folder", ["cli", "deploy", "export", "runtime"])
def test_inside_a_package_too_imports_go_one_way(folder: str) -> None:
    graph = parts(ROOT / folder)
    assert graph
    assert not circle(graph)


def test_a_circle_is_found() -> None:
    assert circle({"load": {"graph"}, "graph": {"validate"}, "validate": {"load"}})
    assert not circle({"load": {"attention"}, "graph": {"load", "attention"}})


@pytest.mark.full
@pytest.mark.parametrize("folder", ["core", "deploy", "runtime"])
def test_what_runs_models_never_imports_torch_or_onnx(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        for module, _ in imports(path):
            assert module.split(".")[0] not in {"torch", "onnx", "onnxscript"}, path


def test_every_public_name_exists() -> None:
    expected = {
        "deploy": {"TritonOptions", "ray_serve", "write_repository"},
        "export": {"ExportOptions", "ExportResult", "Plan", "mechanism", "export_model"},
        "models": {"Facts", "LoadedModel", "load", "pretrained_path"},
        "runtime": {"Session", "psnr", "ssim", "run_images", "validate_quality"},
    }
    for folder, names in expected.items():
        face = importlib.import_module(f"nystra.{folder}")
        assert names <= set(face.__all__)
        for name in face.__all__:
            assert name in dir(face)
            assert getattr(face, name) is vars(face)[name]  # kept once it is imported
        with pytest.raises(AttributeError, match=f"No nystra.{folder} attribute nothing"):
            face.nothing  # noqa: B018


def test_the_faces_are_lazy() -> None:
    code = (
        "import sys, nystra.deploy, nystra.models, nystra.export, nystra.runtime, nystra.plugins\n"
        "heavy = {'torch', 'onnx', 'onnxruntime'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_file_is_over_400_lines() -> None:
    for folder in (*ALLOWED, "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".cc", ".cu", ".h"}:
                assert len(path.read_text().splitlines()) <= 400, path
