"""``nystra deploy web``: the contents of the folder, and refusals before it is created."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from classifier_models import save_classifier
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.deploy.web import runtime_files
from nystra.deploy.web.folder import PAGE, write_page
from nystra.deploy.web.options import WebOptions
from nystra.runtime.model.references import ReferenceCase, write_references
from runtime_models import nystra_metadata, save_operator, save_upscaler
from shared import ROOT


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small unpacked package that is accepted as onnxruntime-web."""
    folder = tmp_path / "npm" / "package"
    (folder / "dist").mkdir(parents=True)
    (folder / "dist" / "ort.all.min.mjs").write_text("not needed")
    for name in runtime_files.FILES:
        content = f"stands for {name}".encode()
        (folder / "dist" / name).write_bytes(content)
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        monkeypatch.setitem(runtime_files.FILES, name, digest)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "double.onnx"
    return save_upscaler(path, size=(8, 12), batch=1, metadata=nystra_metadata())


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def record(model: Path) -> None:
    case = ReferenceCase(
        {"input": np.zeros((1, 3, 8, 12), np.uint8)},
        {"output": np.zeros((1, 3, 16, 24), np.float32)},
    )
    write_references(model.with_suffix(".npz"), [case], {"tolerances": [1e-4]})


def test_a_folder_with_references(model: Path, package: Path, tmp_path: Path) -> None:
    record(model)
    folder = write_page(model, tmp_path / "page", WebOptions(onnxruntime_web=package))
    code = {
        path.name for pattern in ("*.js", "*.html", "*.css", "*.svg") for path in PAGE.glob(pattern)
    }
    code.remove("index.js")  # of the npm package
    ours = {"README.md", "model.json", "double.onnx", "double.npz", "ort/LICENSE"}
    assert files(folder) == ours | code | {f"ort/{name}" for name in runtime_files.FILES}
    listing = json.loads((folder / "model.json").read_text())
    assert listing == {"model": "double.onnx", "references": "double.npz"}
    assert (folder / "double.onnx").read_bytes() == model.read_bytes()
    assert "python -m http.server" in (folder / "README.md").read_text()
    with pytest.raises(NystraError, match="add `overwrite`"):
        write_page(model, folder, WebOptions(onnxruntime_web=package))
    write_page(model, folder, WebOptions(onnxruntime_web=package, overwrite=True))


def test_a_folder_without_references(model: Path, package: Path, tmp_path: Path) -> None:
    odd = shutil.copy(model, tmp_path / "wie schön.onnx")
    folder = write_page(Path(odd), tmp_path / "page", WebOptions(onnxruntime_web=package / "dist"))
    listing = json.loads((folder / "model.json").read_text())
    assert listing == {"model": "model.onnx", "references": None}


def test_the_archive_of_npm_pack(
    model: Path, package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "onnxruntime-web.tgz"
    with tarfile.open(archive, "w:gz") as target:
        target.add(package, "package")
    page = tmp_path / "page"
    flags = ["--onnxruntime-web", str(archive), "--json"]
    assert main(["deploy", "web", str(model), "-o", str(page), *flags]) == 0
    assert set(json.loads(capsys.readouterr().out)["files"]) == files(page)
    cut = tmp_path / "cut.tgz"
    cut.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(NystraError, match=r"cut\.tgz is damaged or not a package"):
        write_page(model, tmp_path / "other", WebOptions(onnxruntime_web=cut))


def test_without_onnxruntime_web(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "web", str(model), "-o", str(tmp_path / "page")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"`npm pack onnxruntime-web@{runtime_files.VERSION}` fetches it" in told
    assert "give --onnxruntime-web" in told
    assert not (tmp_path / "page").exists()


def test_another_onnxruntime_web(model: Path, package: Path, tmp_path: Path) -> None:
    wasm = package / "dist" / "ort.wasm.min.mjs"
    wasm.write_text("another release")
    options = WebOptions(onnxruntime_web=package)
    with pytest.raises(NystraError, match=r"ort\.wasm\.min\.mjs in .* is not the file of"):
        write_page(model, tmp_path / "page", options)
    wasm.unlink()
    with pytest.raises(NystraError, match=r"lacks ort\.wasm\.min\.mjs of onnxruntime-web"):
        write_page(model, tmp_path / "page", options)
    assert not (tmp_path / "page").exists()


def fixed(path: Path, metadata: dict[str, str], **more: Any) -> Path:
    return save_upscaler(path, **({"size": (8, 8), "batch": 1} | more), metadata=metadata)


REFUSED = {
    "any size": (lambda path: save_upscaler(path, metadata=nystra_metadata()), "takes any size"),
    "any batch": (lambda path: fixed(path, nystra_metadata(), batch="b"), "takes any size"),
    "one that is another task's": (
        lambda path: fixed(path, nystra_metadata(**{"nystra.task": "inpainting"})),
        "task is inpainting",
    ),
    "operators": (lambda path: save_operator(path, body=True), "has operators of nystra"),
    "classes": (save_classifier, "is no image|expected 4 axes"),
    "foreign": (lambda path: fixed(path, {}), "which only files of nystra have"),
    "whole": (
        lambda path: fixed(path, nystra_metadata(**{"nystra.tiling": "internal"})),
        "needs the whole image",
    ),
    "int8": (
        lambda path: fixed(path, nystra_metadata(**{"nystra.precision": "int8"})),
        "precision is int8",
    ),
    "four channels": (
        lambda path: fixed(path, nystra_metadata(channels=4), channels=4),
        "takes 4 channels",
    ),
    "half inputs": (
        lambda path: fixed(path, nystra_metadata(), dtype=TensorProto.FLOAT16),
        "takes or gives float16",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_the_page_cannot_run(name: str, package: Path, tmp_path: Path) -> None:
    save, message = REFUSED[name]
    with pytest.raises(NystraError, match=message):
        write_page(
            save(tmp_path / "model.onnx"), tmp_path / "page", WebOptions(onnxruntime_web=package)
        )
    assert not (tmp_path / "page").exists()


def test_damaged_references_are_refused(model: Path, package: Path, tmp_path: Path) -> None:
    model.with_suffix(".npz").write_bytes(b"PK")
    with pytest.raises(NystraError, match="damaged or not written by nystra"):
        write_page(model, tmp_path / "page", WebOptions(onnxruntime_web=package))


def test_the_page_asks_no_other_host_and_evaluates_nothing() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == "'self' 'wasm-unsafe-eval'"
    assert rules["connect-src"] == rules["worker-src"] == rules["style-src"] == "'self'"
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert re.search(r"https?://|\beval\(|new Function|innerHTML|document\.write", text) is None


def project_version() -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'^version = "(.*)"$', text, re.MULTILINE)[0]


def test_versions_and_lock_of_the_package() -> None:
    package = json.loads((ROOT / "web" / "package.json").read_text(encoding="utf-8"))
    named = {package[key]["onnxruntime-web"] for key in ("peerDependencies", "devDependencies")}
    assert named == {runtime_files.VERSION}
    lock = (ROOT / "web" / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock, "it names the registry of whoever wrote it"
    assert package["version"] == json.loads(lock)["version"] == project_version()
