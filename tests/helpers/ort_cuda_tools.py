"""The CUDA binding of onnxruntime without a GPU: built with the emulated kernels, and its rows.

``python tests/helpers/ort_cuda_tools.py LIBRARY FILE.npz`` runs all rows on one library, in a
process that loads no other emulated library.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import emulator_build
import emulator_columns
from conformance_case import Case, Outputs
from conformance_cases import CASES
from conformance_models import node_model, run_poisoned, session
from operator_tests import CUDA_OPERATORS

ROOT = emulator_build.ROOT
BINDING = ROOT / "plugins" / "csrc" / "onnxruntime"
HOST = ROOT / "tests" / "plugins" / "emulator_onnxruntime" / "register.cc"
LIBRARY = "libnystra_onnxruntime.so"
"""Under this name the tests of the CPU library take it for theirs."""

LARGEST = 40_000
"""Elements of a row's first input up to which it runs here; the table's own columns run all."""


def sources() -> list[Path]:
    """Return the sources: the binding. The operators are in the library of the emulator."""
    return [BINDING / "registration.cc", BINDING / "binding.cc", BINDING / "cuda" / "binding.cc"]


def build() -> Path:
    """Return the library, compiled if the cache has none of these sources.

    Raises:
        EmulatorError: g++ refused the sources.
    """
    kernels = emulator_build.build("plain")
    digest = hashlib.sha256(kernels.name.encode())
    for file in [*sorted(BINDING.rglob("*.*")), HOST]:
        digest.update(file.read_bytes())
    folder = emulator_build.CACHE / f"onnxruntime-{digest.hexdigest()[:16]}"
    with open(emulator_build.CACHE / "onnxruntime.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        library = folder / LIBRARY
        if not library.is_file():
            for old in emulator_build.CACHE.glob("onnxruntime-*"):
                shutil.rmtree(old)
            folder.mkdir()
            _compile(kernels, library)
        return library


def _compile(kernels: Path, library: Path) -> None:
    """Compile the small sources as one, since most of their time is shared headers."""
    unfinished, together = library.with_suffix(".tmp"), library.with_name("sources.cc")
    together.write_text("".join(f'#include "{source}"\n' for source in sources()))
    command = [
        *("g++", *emulator_build.FLAGS, "-shared"),
        *(str(together), str(HOST)),
        *(str(kernels), f"-Wl,-rpath,{kernels.parent},-z,defs", "-o", str(unfinished)),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise emulator_build.EmulatorError(f"{' '.join(command)}\n{done.stderr}")
    unfinished.rename(library)


def dtypes(case: Case) -> tuple[str, ...]:
    """Return the types of a row; none if it is too large or has no CUDA kernel.

    Every third row runs in all its types.
    """
    if case.operator not in CUDA_OPERATORS:
        return ()
    if case.refused_by:
        return case.dtypes
    if np.prod(case.shape) > LARGEST or case.search_entries > emulator_columns.MANY:
        return ()
    types = emulator_columns.dtypes("plain", "default", case)
    return types if CASES.index(case) % 3 == 0 else types[:1]


def _model(case: Case, dtype: str) -> onnx.ModelProto:
    """A model of one node; of bfloat16 between casts, since onnxruntime has no such arrays."""
    if dtype != "bfloat16":
        return node_model(case, dtype=dtype, functions=False)
    model = node_model(case, dtype="float32", functions=False)
    node, graph = model.graph.node[0], model.graph
    kinds = {
        value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)
    }
    before, after = [], []
    for names, casts in ((node.input, before), (node.output, after)):
        for place, name in enumerate(names):
            if kinds[name] == TensorProto.FLOAT:
                to = TensorProto.BFLOAT16 if casts is before else TensorProto.FLOAT
                ends = (name, f"{name}_b") if casts is before else (f"{name}_b", name)
                casts.append(helper.make_node("Cast", ends[:1], ends[1:], to=to))
                names[place] = f"{name}_b"
    inner = graph.node.pop()
    graph.node.extend([*before, inner, *after])
    return model


def run_case(library: Path, case: Case, dtype: str) -> list[np.ndarray]:
    """The outputs of a row from a library; bfloat16 as float32."""
    arrays = case.inputs(dtype)
    if dtype == "bfloat16":
        arrays = [
            array if array.dtype == np.int32 else array.astype(np.float32) for array in arrays
        ]
    runner = session(_model(case, dtype), library)
    return run_poisoned(runner, arrays, case.output_shapes())


def run_all(library: Path, file: Path) -> None:
    """Run every row; write its outputs, or its error, by ``<row>.<dtype>.<place>``."""
    outcomes: dict[str, np.ndarray] = {}
    for row, case in enumerate(CASES):
        for dtype in dtypes(case):
            try:
                results = run_case(library, case, dtype)
            except Exception as error:
                outcomes[f"{row}.{dtype}.error"] = np.array(str(error) or repr(error))
                continue
            for place, result in enumerate(results):
                outcomes[f"{row}.{dtype}.{place}"] = result
    outcomes["use"] = np.array(use(library))
    np.savez(file, **outcomes)


def use(library: Path) -> tuple[int, int, int]:
    """Workspaces in use, allocators held by nodes, and workspaces allocated in this process."""
    numbers = [ctypes.c_long() for _ in range(3)]
    ctypes.CDLL(str(library)).emulated_use(*map(ctypes.byref, numbers))
    return numbers[0].value, numbers[1].value, numbers[2].value


@functools.cache
def outcomes() -> dict[str, np.ndarray]:
    """Return the results of `run_all`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.npz"
        done = child([__file__, str(build()), str(file)])
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}\n{done.stderr[-6000:]}")
        with np.load(file) as stored:
            return dict(stored)


def child(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the tests' path and additional environment variables."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def outcome(case: Case, dtype: str) -> Outputs | Exception:
    """Return the outputs of a row, or its error."""
    written, row = outcomes(), f"{CASES.index(case)}.{dtype}"
    if f"{row}.error" in written:
        return RuntimeError(str(written[f"{row}.error"]))
    results = [written[f"{row}.{place}"] for place in range(len(case.output_shapes()))]
    if dtype == "bfloat16":
        import ml_dtypes

        results = [
            result.astype(ml_dtypes.bfloat16) if result.dtype == np.float32 else result
            for result in results
        ]
    return results[0] if len(results) == 1 else tuple(results)


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), Path(sys.argv[2]))
