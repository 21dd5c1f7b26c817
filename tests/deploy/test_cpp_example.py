"""The C++ example, built and run where ONNXRUNTIME_ROOT names an onnxruntime with its headers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from exports import NYSTRA, export
from native_nodes import library
from nystra.export import ExportOptions
from nystra.runtime import Session
from shared import ROOT


@pytest.fixture(scope="module")
def upscale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built."""
    if not os.environ.get("ONNXRUNTIME_ROOT"):
        pytest.skip("ONNXRUNTIME_ROOT is not set: no onnxruntime headers and library to build with")
    if shutil.which("cmake") is None:
        pytest.skip("no cmake on this machine")
    build = tmp_path_factory.mktemp("example")
    for command in (
        ["cmake", "-S", ROOT / "examples" / "cpp", "-B", build, "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", build],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "upscale"


def test_the_image_is_the_one_python_makes(upscale: Path, tmp_path: Path) -> None:
    model = export(tmp_path, ExportOptions(NYSTRA))
    pixels = np.random.default_rng(0).integers(0, 256, (20, 28, 3), np.uint8)
    (tmp_path / "in.ppm").write_bytes(b"P6 28 20 255\n" + pixels.tobytes())
    command = [upscale, model, library(), tmp_path / "in.ppm", tmp_path / "out.ppm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "28x20 -> 56x40\n"), done.stderr
    image = pixels.transpose(2, 0, 1)[None].astype(np.float32) / 255
    want = np.round(255 * Session(model, library=library())(image).clip(0, 1))[0]
    head, _, body = (tmp_path / "out.ppm").read_bytes().partition(b"255\n")
    assert head.split() == [b"P6", b"56", b"40"]
    got = np.frombuffer(body, np.uint8).reshape(40, 56, 3).transpose(2, 0, 1)
    assert want.std() > 1
    assert np.abs(got - want).max() <= 1  # a value at a half may be rounded to either side


def test_what_goes_wrong_is_said(upscale: Path, tmp_path: Path) -> None:
    def fails(*arguments: object) -> str:
        done = subprocess.run(
            [upscale, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode in (1, 2)
        return done.stderr

    assert "usage: upscale MODEL.onnx" in fails()
    assert "nothing.so" in fails("model.onnx", "nothing.so", "in.ppm", "out.ppm")
    model = export(tmp_path, ExportOptions(NYSTRA))
    missing = tmp_path / "in.ppm"
    assert "in.ppm is not a binary PPM file" in fails(model, library(), missing, "out.ppm")
