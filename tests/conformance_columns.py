"""The columns of the conformance table: what the rows are replayed on. A new one is an entry."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from conformance_cases import CASES, Case, expected
from conformance_models import node_model, run_poisoned, session

Outcome = np.ndarray | Exception


@dataclass(frozen=True)
class Column:
    """One way to compute a row.

    Attributes:
        name: what the test is called after.
        family: key of the tolerances and of ``Case.refused_by``.
        run: (case, dtype) -> the output, or what was raised.
        missing: why it cannot run on this machine, or None.
    """

    name: str
    family: str
    run: Callable[[Case, str], Outcome]
    missing: Callable[[], str | None] = lambda: None


def run_torch(case: Case, dtype: str) -> Outcome:
    importlib.import_module(f"nystra.plugins.operators.{case.folder}.torch_op")
    operator = getattr(torch.ops.nystra, case.folder)
    names = [one.name for one in operator.default._schema.arguments]
    tensors = [torch.from_numpy(array) for array in case.inputs(dtype)]
    attributes = case.all_attributes()
    attributes = {name: attributes[name] for name in names[len(tensors) :]}
    torch.use_deterministic_algorithms(True)  # empty tensors are then filled with NaN
    try:
        return operator(*tensors, **attributes).numpy()
    except Exception as error:
        return error
    finally:
        torch.use_deterministic_algorithms(False)


def run_body(case: Case, dtype: str) -> Outcome:
    shape = expected(case, dtype).shape
    return run_poisoned(session(node_model(case, dtype=dtype)), case.inputs(dtype), [shape])[0]


def kernel_library() -> Path | str:
    """The path of the custom-op library, or why there is none."""
    try:
        from nystra.plugins.library import library_path

        path = Path(library_path())
    except (ImportError, FileNotFoundError, RuntimeError) as error:
        return f"the operator library is not built: {error}"
    return path if path.is_file() else f"the operator library is not built: no {path}"


def _kernel_missing(flag: str | None) -> str | None:
    found = kernel_library()
    if isinstance(found, str):
        return found
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text().split() if cpu.is_file() else []
    return None if flag is None or flag in flags else f"this CPU has no {flag}"


@functools.cache
def _kernel_outcomes(isa: str) -> dict[str, np.ndarray]:
    """All rows on the kernels of one instruction set, which is chosen once a process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.npz"
        env = {**os.environ, "NYSTRA_CPU_ISA": isa, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, __file__, str(file)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"kernels of {isa}: exit {done.returncode}\n{done.stderr}")
        with np.load(file) as stored:
            return dict(stored)


def run_kernel(isa: str, case: Case, dtype: str) -> Outcome:
    outcome = _kernel_outcomes(isa)[f"{CASES.index(case)}.{dtype}"]
    return RuntimeError(str(outcome)) if outcome.dtype.kind == "U" else outcome


def _run_all_kernels(file: Path) -> None:
    library = kernel_library()
    assert isinstance(library, Path), library
    outcomes = {}
    for row, case in enumerate(CASES):
        for dtype in case.dtypes:
            try:
                model = node_model(case, dtype=dtype, functions=False)
                runner, arrays = session(model, library), case.inputs(dtype)
                shape = arrays[0].shape
                if case.operator != "NystraPinv":
                    shape = (
                        *shape[:3],
                        int(case.attributes["heads"] * case.attributes["value_dim"]),
                    )
                result = run_poisoned(runner, arrays, [shape])[0]
            except Exception as error:
                result = np.array(str(error) or repr(error))
            outcomes[f"{row}.{dtype}"] = result
    np.savez(file, **outcomes)


COLUMNS: list[Column] = [
    Column("torch", "torch", run_torch),
    Column("body", "body", run_body),
    *(
        Column(
            f"cpu-{isa}",
            "cpu",
            functools.partial(run_kernel, isa),
            functools.partial(_kernel_missing, flag),
        )
        for isa, flag in (("generic", None), ("avx2", "avx2"), ("avx512", "avx512f"))
    ),
]

if __name__ == "__main__":
    _run_all_kernels(Path(sys.argv[1]))
