"""libnystra_onnxruntime_cuda as a file, and in onnxruntime without a GPU, on the CPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import ort_cuda_tools as tools
from conformance_cases import CASES
from conformance_models import node_model, run_poisoned, session
from conformance_tolerance import compare
from nystra.plugins.library import CUDA_LIBRARY, library_path
from nystra.plugins.operators import OPERATORS
from operator_tests import CUDA_OPERATORS
from programs import printed_by

STEP = 3
"""Every how many rows of the table; the CPU library's own columns run all of them."""


def built() -> Path:
    """The library under test; the test is skipped if it was not built."""
    try:
        return library_path(CUDA_LIBRARY)
    except FileNotFoundError as error:
        pytest.skip(str(error))


def test_exports_the_entry_points_of_the_cpu_library() -> None:
    lines = printed_by("nm", "-D", "--defined-only", str(built())).splitlines()
    names = {line.split()[-1].partition("@")[0] for line in lines}
    assert names == {"RegisterCustomOps", "nystra_isa"}


def test_needs_neither_onnxruntime_nor_cuda() -> None:
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", printed_by("readelf", "-d", str(built())))
    known = r"(libstdc\+\+|libgcc_s|libc|libm|libdl|libpthread|librt|ld-linux.*)\.so.*"
    assert [library for library in needed if not re.fullmatch(known, library)] == []
    undefined = printed_by("nm", "-DC", "--undefined-only", str(built()))
    assert re.findall(r"\b(cuda\w*|cu[A-Z]\w*|Ort\w*|nv\w*)", undefined) == []


def test_holds_device_code() -> None:
    assert re.findall(r"sm_\d+", printed_by("cuobjdump", "--list-elf", str(built())))


def test_nothing_of_the_tests_is_inside() -> None:
    content = built().read_bytes()
    assert b"CUDAExecutionProvider" in content
    assert [word for word in (b"NYSTRA_FAULT", b"emulated_use") if word in content] == []


def test_rows_on_the_cpu() -> None:
    """The CPU operators are chosen; CUDA nodes would give no result."""
    library, seen = built(), set()
    for case in [case for case in CASES if case.operator in CUDA_OPERATORS][::STEP]:
        for dtype in () if case.refused_by else case.dtypes:
            runner = session(node_model(case, dtype=dtype, functions=False), library)
            results = run_poisoned(runner, case.inputs(dtype), case.output_shapes())
            compare(case, dtype, "cpu", results[0] if len(results) == 1 else tuple(results))
            seen.add((case.operator, dtype))
    assert seen == {(name, dtype) for name in CUDA_OPERATORS for dtype in ("float32", "float16")}


@pytest.mark.parametrize("operator", sorted(OPERATORS.keys() - set(CUDA_OPERATORS)))
def test_an_operator_without_a_cuda_kernel_runs_its_body(operator: str) -> None:
    """It is not registered: a kernel of the CPU would take its node from the CUDA provider."""
    case = next(case for case in CASES if case.operator == operator and not case.refused_by)
    with pytest.raises(Exception, match=f"nystra:{operator}.* is not a registered function/op"):
        session(node_model(case, functions=False), built())
    runner = session(node_model(case), built())
    [got] = run_poisoned(runner, case.inputs("float32"), case.output_shapes())
    compare(case, "float32", "body", got)


def test_a_bfloat16_node_has_no_kernel_on_the_cpu() -> None:
    case = next(case for case in CASES if case.operator == "NystraPinv" and not case.refused_by)
    with pytest.raises(Exception, match="Could not find an implementation for NystraPinv"):
        tools.run_case(built(), case, "bfloat16")


def test_two_libraries_of_one_domain_are_refused() -> None:
    options = ort.SessionOptions()
    case = next(case for case in CASES if case.operator == "NystraPinv" and not case.refused_by)
    try:
        options.register_custom_ops_library(str(library_path()))
    except FileNotFoundError as error:
        pytest.skip(str(error))
    options.register_custom_ops_library(str(built()))
    model = node_model(case, functions=False).SerializeToString()
    with pytest.raises(Exception, match="Domain already set in registry"):
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


OLD = """
#include "onnxruntime/ort_abi.h"
#include <cstdio>
using namespace nystra::ort;
extern "C" Status* RegisterCustomOps(SessionOptions*, const ApiBase*);
static Status* create(int code, const char* message) {
  std::printf("%d %s", code, message);
  return nullptr;
}
static void (*table[279])() = {reinterpret_cast<void (*)()>(create)};
static Table get_api(uint32_t version) { return version > 17 ? nullptr : table; }
int main() {
  const ApiBase base{get_api, []() -> const char* { return "1.17.3"; }};
  RegisterCustomOps(nullptr, &base);
}
"""


def test_an_older_onnxruntime_is_refused(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    library = built()
    (tmp_path / "old.cc").write_text(OLD)
    program = tmp_path / "old"
    include = tools.ROOT / "plugins" / "csrc"
    options = ["-std=c++17", f"-I{include}", f"-Wl,-rpath,{library.parent}"]
    source = str(tmp_path / "old.cc")
    printed_by("g++", *options, source, str(library), "-o", str(program))
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    assert "need onnxruntime 1.18 or newer; this is 1.17.3" in printed


def test_the_ordinary_library_has_no_cuda() -> None:
    try:
        content = library_path().read_bytes()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert b"CUDAExecutionProvider" not in content


@pytest.mark.skipif("NYSTRA_ORT_GPU_ROOT" not in os.environ, reason="no NYSTRA_ORT_GPU_ROOT")
def test_onnxruntime_gpu_without_a_driver(tmp_path: Path) -> None:
    """The wheel onnxruntime-gpu takes the library; without a driver the CPU serves the node."""
    case = next(case for case in CASES if case.operator == "NystraPinv" and not case.refused_by)
    script = (
        "import sys, numpy as np, onnxruntime as ort\n"
        "from pathlib import Path\n"
        "assert 'CUDAExecutionProvider' in ort.get_available_providers()\n"
        "options = ort.SessionOptions(); options.log_severity_level = 4\n"
        "options.register_custom_ops_library(sys.argv[1])\n"
        "providers = ['CUDAExecutionProvider', 'CPUExecutionProvider']\n"
        "one = ort.InferenceSession(sys.argv[2], options, providers=providers)\n"
        "print(one.get_providers())\n"
        "names = [node.name for node in one.get_inputs()]\n"
        "feeds = {name: np.load(sys.argv[3])[name] for name in names}\n"
        "np.save(sys.argv[4], one.run(None, feeds)[0])\n"
    )
    model = node_model(case, functions=False)
    names = [value.name for value in model.graph.input]
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    np.savez(tmp_path / "in.npz", **dict(zip(names, case.inputs("float32"), strict=True)))
    files = [str(tmp_path / name) for name in ("m.onnx", "in.npz", "out.npy")]
    root = os.environ["NYSTRA_ORT_GPU_ROOT"]
    done = tools.child(
        ["-c", f"import sys; sys.path.insert(0, {root!r})\n{script}", str(built()), *files]
    )
    assert done.returncode == 0, done.stderr
    if "CUDAExecutionProvider" in done.stdout:
        pytest.skip("this machine has a GPU")
    assert done.stdout.splitlines()[-1] == "['CPUExecutionProvider']"
    compare(case, "float32", "cpu", np.load(files[-1]))
