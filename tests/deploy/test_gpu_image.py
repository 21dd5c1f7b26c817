"""The GPU image: its nvcc knows every architecture that the kernels are built for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from shared import ROOT

ARCHITECTURES = {
    "12.8": {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 120},
    "13.0": {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121},
}
"""CUDA -> what ``nvcc --list-gpu-arch`` of that version prints."""


def _built_for() -> set[int]:
    text = (ROOT / "plugins" / "cmake" / "cuda.cmake").read_text()
    found = re.search(r"set\(NYSTRA_CUDA_ARCHITECTURES ([^\n]*)", text)
    assert found
    return {int(one.partition("-")[0]) for one in found[1].split()}


def _images() -> list[str]:
    text = (ROOT / "deploy" / "containers" / "gpu.Dockerfile").read_text()
    return re.findall(r"^FROM nvidia/cuda:(\d+\.\d+)\.\d+-", text, flags=re.MULTILINE)


def test_the_compiler_of_the_image_knows_every_architecture() -> None:
    versions = _images()
    assert len(versions) == 2
    assert len(set(versions)) == 1, "built with one CUDA, run on another"
    unknown = _built_for() - ARCHITECTURES[versions[0]]
    assert not unknown, f"nvcc of CUDA {versions[0]} does not know {sorted(unknown)}"
    assert _built_for() - ARCHITECTURES["12.8"] == {110}, "an older nvcc would do now"


def test_the_compiler_here_knows_them_too() -> None:
    compiler = os.environ.get("CUDACXX") or shutil.which("nvcc")
    if compiler is None:
        pytest.skip("no nvcc here: CUDACXX is not set")
    listed = subprocess.run(
        [compiler, "--list-gpu-arch"], capture_output=True, text=True, check=True
    ).stdout
    known = {int(one) for one in re.findall(r"compute_(\d+)", listed)}
    assert _built_for() <= known
