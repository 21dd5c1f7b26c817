"""Files of every released version can be read, run and checked."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from native_nodes import library
from nystra import __version__
from nystra.cli.main import main
from nystra.export.attention.plan import read_plan
from nystra.plugins.operators import OPERATORS
from nystra.runtime.model.manifest import Manifest
from processor import require_exact_int8
from shared import ROOT

HERE = Path(__file__).parent
VERSIONS = sorted(
    (folder.name for folder in HERE.glob("[0-9]*")),
    key=lambda version: tuple(map(int, version.split("."))),
)
FILES = [file for version in VERSIONS for file in sorted(HERE.glob(f"{version}/*.onnx"))]
UNRUNNABLE = "bf16"
"""No CPU runs it: nystra says which backends do."""

NEEDS_THE_LIBRARY = "no_bodies"
QUICK = {
    HERE / VERSIONS[0] / f"{name}.onnx"
    for name in ("cluster", "full", "linformer", "no_bodies", "patches", "tokens")
}
"""One of each kind, of the oldest version."""


def each(files: list[Path]) -> Any:
    cases = [
        pytest.param(
            file,
            id=f"{file.parent.name}-{file.stem}",
            marks=[] if file in QUICK else [pytest.mark.full],
        )
        for file in files
    ]
    return pytest.mark.parametrize("file", cases)


def every(*left_out: str) -> Any:
    return each([file for file in FILES if file.stem not in left_out])


@every(UNRUNNABLE)
def test_its_baseline_holds_with_the_library(file: Path) -> None:
    """Outputs of kernels and bodies, weights, kernels and metadata are as accepted."""
    library()
    if file.stem == "int8":
        require_exact_int8()
    assert main(["check", str(file), "--baseline", str(file.with_suffix(".baseline.json"))]) == 0


@every(UNRUNNABLE, NEEDS_THE_LIBRARY)
def test_it_is_valid_without_the_library(file: Path) -> None:
    if file.stem == "int8":
        require_exact_int8()
    assert main(["validate", str(file), "--library", "none"]) == 0


@every(UNRUNNABLE)
def test_it_runs(file: Path, tmp_path: Path) -> None:
    if file.stem == NEEDS_THE_LIBRARY:
        library()
    image, output = tmp_path / "in.png", tmp_path / "out.png"
    noise = np.random.default_rng(0).integers(0, 256, (16, 24, 3), np.uint8)
    Image.fromarray(noise).save(image)
    more: list[str] = []
    if file.stem == "patches":
        hole = np.zeros((16, 24), np.uint8)
        hole[4:8, 6:12] = 255
        Image.fromarray(hole).save(tmp_path / "hole.png")
        more = ["--mask", str(tmp_path / "hole.png")]
    elif onnx.load(file).graph.output[0].name == "logits":
        output = tmp_path / "classes.csv"
    assert main(["run", str(file), "-i", str(image), "-o", str(output), *more]) == 0
    assert output.stat().st_size > 0


@every()
def test_what_lies_beside_it_is_read(file: Path) -> None:
    manifest = Manifest.read(Manifest.path_for(file))
    assert manifest.model == file.name
    assert read_plan(file.with_suffix(".plan.json")).sites
    assert main(["inspect", str(file)]) in (0, 3)


@each([file for file in FILES if file.stem == UNRUNNABLE])
def test_what_no_cpu_runs_says_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(file), "--backend", "ort-cpu"]) == 3
    assert "computes in bf16" in capsys.readouterr().err


@each([file for file in FILES if file.stem == NEEDS_THE_LIBRARY])
def test_a_file_without_bodies_asks_for_the_library(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(file), "--library", "none"]) == 3
    assert "needs the operator library" in capsys.readouterr().err


def test_a_wrong_output_of_an_old_file_is_noticed(tmp_path: Path) -> None:
    """Negative control: one weight of a file is changed, its references are not."""
    for file in (HERE / VERSIONS[0]).glob("full.*"):
        shutil.copy(file, tmp_path)
    model = onnx.load(tmp_path / "full.onnx")
    weight = next(one for one in model.graph.initializer if one.name == "conv_first.weight")
    values = onnx.numpy_helper.to_array(weight) * 1.5
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(model, tmp_path / "full.onnx")
    assert main(["validate", str(tmp_path / "full.onnx")]) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_the_files_have_every_operator_that_is_exported(version: str) -> None:
    kinds = {
        node.op_type
        for file in HERE.glob(f"{version}/*.onnx")
        for node in onnx.load(file).graph.node
        if node.domain == "nystra"
    }
    assert kinds <= set(OPERATORS)
    if version == __version__:
        assert kinds == set(OPERATORS)


def test_every_released_version_has_files() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## (\d[\d.]*)$", changelog, re.M)
    assert set(released) <= set(VERSIONS)
