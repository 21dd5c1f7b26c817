"""Execution providers of onnxruntime for tests: a plug-in of the tests' own, WebGPU in software."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nystra.runtime.model.references import ReferenceCase, write_references
from runtime_models import nystra_metadata
from shared import ROOT

RIGHT, WRONG = "RightExecutionProvider", "WrongExecutionProvider"
"""The providers of the plug-in, which take every Relu and compute it so."""

_SOURCE = ROOT / "tests" / "runtime" / "provider.cc"
_DRIVERS = (
    os.environ.get("VK_ICD_FILENAMES", ""),
    "/usr/lib/chromium/vk_swiftshader_icd.json",  # of Debian's package chromium
)


def build_plugin(folder: Path) -> Path:
    """Return the library of `RIGHT` and `WRONG`, compiled; skip without a compiler."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler: the plug-in of the tests is compiled here")
    library = folder / "libprovider.so"
    options = ("-std=c++17", "-O1", "-shared", "-fPIC")
    subprocess.run([compiler, *options, str(_SOURCE), "-o", str(library)], check=True)
    return library


def save_relu(path: Path) -> Path:
    """Write a model of two nodes, Neg and Relu, of the same size in and out, with references."""
    shape = ["batch", 3, "height", "width"]
    graph = helper.make_graph(
        [
            helper.make_node("Neg", ["input"], ["negated"]),
            helper.make_node("Relu", ["negated"], ["output"]),
        ],
        "relu",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, shape)],
    )
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    helper.set_model_props(model, nystra_metadata(1))
    onnx.save(model, path)
    image = -np.random.default_rng(1).random((1, 3, 6, 5)).astype(np.float32)
    image[:, :, 0] *= -1
    case = ReferenceCase({"input": image}, {"output": np.maximum(-image, 0)})
    write_references(path.with_suffix(".npz"), [case], {"tolerances": [1e-5]})
    return path


def require_webgpu(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the version of the WebGPU provider, set up to compute in software; skip without it."""
    try:
        found = version("onnxruntime-ep-webgpu")
    except PackageNotFoundError:
        pytest.skip("onnxruntime-ep-webgpu is not installed: pip install onnxruntime-ep-webgpu")
    driver = next((path for path in _DRIVERS if path and Path(path).is_file()), None)
    if driver is None:
        pytest.skip(
            "no software driver of Vulkan: apt install chromium brings SwiftShader, or name one in "
            "VK_ICD_FILENAMES"
        )
    monkeypatch.setenv("VK_ICD_FILENAMES", driver)
    monkeypatch.setenv("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1")
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR", "/tmp"))
    return found
