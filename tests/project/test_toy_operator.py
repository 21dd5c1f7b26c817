"""An operator is added with the files of CONTRIBUTING's table, and then runs everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import toy_operator
from emulator_build import FLAGS
from shared import ROOT
from toy_tree import planted, run_in

USE = """
sys.path.append(f"{sys.path[0]}/nystra/tests/plugins")
import numpy as np, onnx, onnxruntime as ort, torch
from onnx import TensorProto, helper
from nystra.plugins import library, native
from nystra.core.errors import NystraError
from nystra.plugins.operators.schema import node_attributes
from nystra.plugins.operators.functions import operator_body
from reference.toy_scale import reference
from nystra.plugins.operators.toy_scale import torch_op

built = sys.argv[1] == "built"
kinds = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}

def session(kind, with_body, with_library, **changes):
    attributes = node_attributes("NystraToyScale", factor=-1.5) | changes
    node = helper.make_node("NystraToyScale", ["x"], ["y"], domain="nystra", **attributes)
    x, y = (helper.make_tensor_value_info(name, kinds[kind], [None, None]) for name in "xy")
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("nystra", 1)]
    functions = [operator_body("NystraToyScale", 20)] if with_body else []
    graph = helper.make_graph([node], "toy", [x], [y])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)
    if with_body:
        onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if with_library:
        options.register_custom_ops_library(str(library.library_path()))
    return ort.InferenceSession(model.SerializeToString(), options)

assert native.available() == built
for kind in kinds:
    for shape in [(1, 1), (3, 1029), (1, 0)]:
        x = np.random.default_rng(0).standard_normal(shape).astype(kind)
        want = reference(x, factor=-1.5).astype(kind)
        got = [session(kind, True, False).run(None, {"x": x})[0]]
        got.append(torch.ops.nystra.toy_scale(torch.from_numpy(x), -1.5).numpy())
        if built:
            got.append(session(kind, False, True).run(None, {"x": x})[0])
            got += native.run("NystraToyScale", [x], {"factor": -1.5})
        for one in got:
            np.testing.assert_array_equal(one, want)

def refused(call, *words):
    try:
        call()
    except Exception as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(words)

one = np.ones((1, 1), np.float32)
refused(lambda: reference(one, factor=9), "factor is 9.0; expected -8.0 to 8.0")
refused(lambda: torch.ops.nystra.toy_scale(torch.from_numpy(one), 9.0), "expected -8.0 to 8.0")
if built:
    message = "NystraToyScale: attribute factor is 9; expected -8 to 8"
    refused(lambda: native.run("NystraToyScale", [one], {"factor": 9.0}), message)
    refused(lambda: session("float32", False, True, factor=9.0), message)
    refused(lambda: native.run("NystraToyScale", [one], {}), "attribute factor is missing")
    deep = one.reshape(1, 1, 1, 1, 1)
    refused(lambda: native.run("NystraToyScale", [deep], {"factor": 1}), "expected rank 4 at most")
"""


ROWS = """
import pytest
folder, chosen = sys.argv[1:]
path = f"pythonpath={folder}/tests/helpers {folder}/tests/plugins"
options = ["-q", "--import-mode=importlib", "-p", "no:cacheprovider", "--rootdir", folder]
options += ["-c", "/dev/null", "-o", path, "-W", "ignore"]
options += ["-k", f"complete or NystraToyScale and ({chosen})"]
sys.exit(pytest.main([*options, f"{folder}/tests/plugins/test_conformance.py"]))
"""
"""The rows of the toy in the conformance table, in columns that start no process."""

EMULATED = """
folder = sys.argv[1]
sys.path += [f"{folder}/tests/helpers", f"{folder}/tests/plugins"]
import numpy as np
import emulator_build, emulator_columns, emulator_library
from conformance_cases import CASES, expected
library = emulator_library.load(emulator_build.build("plain"))
for case in CASES:
    if case.operator == "NystraToyScale" and not case.refused_by:
        for limits in emulator_columns.LIMITS.values():
            inputs = case.inputs("float32")
            [y] = emulator_library.run(library, case, inputs, "float32", limits)
            np.testing.assert_allclose(y, expected(case, "float32"), rtol=1e-6)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = planted(tmp_path_factory.mktemp("toy"), toy_operator.TOY)
    write_tables = tree / "plugins" / "csrc" / "write_tables.py"
    subprocess.run([sys.executable, str(write_tables), str(tree / "tables")], check=True)
    return tree


@pytest.mark.full
def test_in_python(tree: Path) -> None:
    """The reference, the torch op and the body, and their rows; nothing is built."""
    environment = os.environ | {"NYSTRA_LIBRARY_DIR": ""}
    done = run_in(tree, USE, "not", env=environment)
    assert done.returncode == 0, done.stderr
    columns = "not cpu and not openvino and not emulator"
    done = run_in(tree, ROWS, tree, columns, env=environment)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.full
def test_on_a_gpu_it_compiles(tree: Path, tmp_path: Path) -> None:
    """As C++ of the block emulator, without nvcc."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    csrc = tree / "plugins" / "csrc"
    for part in ("kernels/cuda/toy_scale.cu", "operators/toy_scale.cc"):
        source = csrc / part
        flags = [flag for flag in FLAGS if not flag.startswith("-I")]
        flags += [f"-I{ROOT}/tests/plugins/emulator", f"-I{csrc}", f"-I{tree / 'tables'}"]
        command = ["g++", *flags, "-fsyntax-only", "-x", "c++", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_with_nvcc_and_tensorrt_it_compiles(tree: Path, tmp_path: Path) -> None:
    nvcc, tensorrt = (os.environ.get(name) for name in ("CUDACXX", "TENSORRT_ROOT"))
    if nvcc is None or tensorrt is None:
        pytest.skip("CUDACXX and TENSORRT_ROOT do not say where nvcc and TensorRT's headers are")
    csrc = tree / "plugins" / "csrc"
    flags = ["-std=c++17", f"-I{csrc}", f"-I{tree / 'tables'}", f"-I{tensorrt}/include"]
    flags += ["-c", "-o", str(tmp_path / "o")]
    cuda = f"-I{Path(nvcc).parent.parent}/include"
    examples = tree / "tests" / "plugins" / "tensorrt_host" / "examples.cc"
    for compiler, source in (
        ([nvcc, "-arch=sm_86"], csrc / "kernels" / "cuda" / "toy_scale.cu"),
        (["g++", "-fsyntax-only", cuda], examples),
    ):
        command = [*compiler, *flags, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.release
def test_built(tree: Path, tmp_path: Path) -> None:
    """In onnxruntime with the library, by the C interface, in the torch op and on the emulator."""
    cmake = shutil.which("cmake")
    if cmake is None or shutil.which("g++") is None:
        pytest.skip("no cmake or no g++ on this machine")
    options = ["-DNYSTRA_NATIVE=ON", "-DNYSTRA_CUDA=OFF", "-DNYSTRA_CPU_ISAS="]
    options += ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0"]
    built = tmp_path / "built"
    for command in (
        [cmake, "-S", str(tree / "plugins"), "-B", str(built), *options],
        [cmake, "--build", str(built), "-j2", "--target", "nystra_onnxruntime", "nystra_cpu"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    environment = os.environ | {"NYSTRA_LIBRARY_DIR": str(built), "NYSTRA_CPU_ISA": ""}
    done = run_in(tree, USE, "built", env=environment)
    assert done.returncode == 0, done.stderr
    done = run_in(tree, ROWS, tree, "cpu-interface", env=environment)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
    done = run_in(tree, EMULATED, tree, env=environment)
    assert done.returncode == 0, done.stderr
