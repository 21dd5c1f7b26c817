"""The columns of the conformance table that run the CPU kernels of one instruction set.

It is chosen once per process, so all rows of a column run in one process of their own, which does
not import torch: ``python tests/plugins/kernel_columns.py FILE.npz``.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from ml_dtypes import bfloat16

import emulator_columns
from conformance_case import Case, Outputs
from conformance_cases import CASES
from conformance_models import node_model, run_poisoned, session
from nystra.plugins import native
from nystra.plugins.library import library_path


def missing(flag: str | None) -> str | None:
    """Why the kernels that need a flag of the CPU cannot run on this machine, or None."""
    try:
        library_path()
    except FileNotFoundError as error:
        return f"the operator library is not built: {error}"
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text().split() if cpu.is_file() else []
    return None if flag is None or flag in flags else f"this CPU has no {flag}"


@functools.cache
def _outcomes(isa: str) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.npz"
        env = {**os.environ, "NYSTRA_CPU_ISA": isa, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, __file__, str(file)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"kernels of {isa}: exit {done.returncode}\n{done.stderr}")
        with np.load(file) as stored:
            return dict(stored)


def run(isa: str, case: Case, dtype: str) -> Outputs | Exception:
    """The outcome of a row."""
    outcomes, row = _outcomes(isa), f"{CASES.index(case)}.{dtype}"
    if f"{row}.error" in outcomes:
        return RuntimeError(str(outcomes[f"{row}.error"]))
    results = [outcomes[f"{row}.{place}"] for place in range(len(case.output_shapes()))]
    results = [array.view(bfloat16) if array.dtype == np.uint16 else array for array in results]
    return results[0] if len(results) == 1 else tuple(results)


def through_c(case: Case, dtype: str) -> list[np.ndarray]:
    """The row through the C interface, into memory full of NaN, or of the smallest integer."""

    def poisoned(shape: tuple[int, ...], kind: str) -> np.ndarray:
        return np.full(shape, np.iinfo(kind).min if kind == "int32" else np.nan, kind)

    return native.run(case.operator, case.inputs(dtype), case.all_attributes(), 2, poisoned)


def run_all(file: Path) -> None:
    """Run every row; write its outputs or its error as ``<row>.<dtype>.<index>``."""
    outcomes = {}
    for row, case in enumerate(CASES):
        for dtype in emulator_columns.gpu_types(case):
            try:
                if dtype == "bfloat16":  # which onnxruntime has no arithmetic of on the CPU
                    results = through_c(case, dtype)
                else:
                    model = node_model(case, dtype=dtype, functions=False)
                    runner = session(model, library_path())
                    results = run_poisoned(runner, case.inputs(dtype), case.output_shapes())
            except Exception as error:
                outcomes[f"{row}.{dtype}.error"] = np.array(str(error) or repr(error))
                continue
            for place, result in enumerate(results):
                bits = result.view(np.uint16) if result.dtype == bfloat16 else result
                outcomes[f"{row}.{dtype}.{place}"] = bits
    np.savez(file, **outcomes)


if __name__ == "__main__":
    run_all(Path(sys.argv[1]))
