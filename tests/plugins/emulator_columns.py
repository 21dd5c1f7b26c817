"""The columns of the conformance table that run the CUDA kernels under the block emulator.

All rows of a column run in one process of their own, with several orders of threads and blocks;
the orders must agree to the last bit.

``python tests/plugins/emulator_columns.py LIBRARY BUILD LIMITS FILE.npz`` is that process.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import emulator_build
import emulator_library
from conformance_case import Case, Outputs
from conformance_cases import CASES
from operator_tests import CUDA_OPERATORS

LIMITS = {
    "default": (48 * 1024, 4, 512, 48 * 1024),
    "tight": (25 * 1024 + 512, 2, 3, 25 * 1024 + 512),
    "large": (48 * 1024, 4, 512, 227 * 1024),
}
"""Shared bytes, warps, blocks, shared bytes of the device for kernels that ask. Tight ones send
most rows through the workspace, a large device hardly any."""

ORDERS = {"plain": (0, 1, 2), "asan": (2,), "race": (0,)}
"""Seeds of the order of threads: forwards, backwards, shuffled. The slow builds take one each.
Types that run as a row's first does, run in the first order alone."""

FEW, MANY = 700, 1200
"""Entries times iterations of a field up to which a search runs in every type and order, and up to
which the slow builds run it at all; AddressSanitizer's runs every third of those between."""


def gpu_types(case: Case) -> tuple[str, ...]:
    """The types of a GPU's kernels; bfloat16 only if the reference can be compared in it."""
    return (*case.dtypes, "bfloat16") if getattr(case, "exact", True) else case.dtypes


def dtypes(build: str, limits: str, case: Case) -> tuple[str, ...]:
    """The types a row runs in, of float32, float16 and bfloat16; none: it does not run.

    Only operators with a CUDA kernel run. Tight limits are for what reads them, a large device for
    what may want more of it (`Case.wants_more_shared`): both in one type. Large searches run in one
    type, the largest not in the slow builds: small ones reach every branch. What adds little to
    others of a row, AddressSanitizer's build runs of every third row, before a release of all:
    types that differ in how a number is read and written alone, and large searches.
    """
    if case.operator not in CUDA_OPERATORS or (case.large and build != "plain"):
        return ()
    if limits == "tight":
        return () if case.search_entries else case.dtypes[:1]
    if limits == "large":
        return case.dtypes[:1] if case.wants_more_shared else ()
    if build == "plain":
        return gpu_types(case) if case.search_entries <= FEW else case.dtypes[:1]
    if case.search_entries > (MANY if build == "race" or _thorough(case) else FEW):
        return ()
    if case.search_entries:
        return case.dtypes[:1]
    return case.dtypes if build == "asan" and _thorough(case) else case.dtypes[:1]


def _thorough(case: Case) -> bool:
    """Whether AddressSanitizer's build runs all of a row."""
    return bool(os.environ.get("NYSTRA_RELEASE")) or CASES.index(case) % 3 == 0


def _inputs(case: Case, dtype: str) -> list[np.ndarray]:
    """The row's inputs as the library takes them: bfloat16 as bits."""
    if dtype != "bfloat16":
        return case.inputs(dtype)
    import ml_dtypes  # onnx needs it; it tells numpy of the type

    arrays = case.inputs(dtype)
    return [
        array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array for array in arrays
    ]


def run_all(path: Path, build: str, limits: str, file: Path) -> None:
    """Run every row; write its outputs or its error as ``<row>.<dtype>.<index>``."""
    library = emulator_library.load(path)
    outcomes: dict[str, np.ndarray] = {}
    for row, case in enumerate(CASES):
        if case.refused_by:
            continue  # attributes are checked by the bindings
        for dtype in dtypes(build, limits, case):
            try:
                results = _orders(library, build, limits, case, dtype)
            except emulator_build.EmulatorError as error:
                outcomes[f"{row}.{dtype}.error"] = np.array(str(error))
                continue
            for place, result in enumerate(results):
                outcomes[f"{row}.{dtype}.{place}"] = result
    np.savez(file, **outcomes)


def _orders(
    library: ctypes.CDLL, build: str, limits: str, case: Case, dtype: str
) -> tuple[np.ndarray, ...]:
    """The outputs of a row, which must be equal in every order of the threads."""
    first: tuple[np.ndarray, ...] = ()
    every = dtype == case.dtypes[0] and case.search_entries <= FEW
    for seed in ORDERS[build] if every else ORDERS[build][:1]:
        library.emulator_seed(seed)
        results = emulator_library.run(library, case, _inputs(case, dtype), dtype, LIMITS[limits])
        first = first or results
        if any(
            former.tobytes() != other.tobytes()
            for former, other in zip(first, results, strict=True)
        ):
            raise emulator_build.EmulatorError(
                f"{case.operator}: order {seed} of the threads gives another result"
            )
    return first


@functools.cache
def _outcomes(build: str, limits: str) -> dict[str, np.ndarray]:
    library = emulator_build.build(build)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.npz"
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            **emulator_build.environment(build),
        }
        command = [sys.executable, __file__, str(library), build, limits, str(file)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"emulator {build}: exit {done.returncode}\n{done.stderr[-6000:]}")
        with np.load(file) as stored:
            return dict(stored)


def run(build: str, limits: str, case: Case, dtype: str) -> Outputs | Exception:
    """The outcome of a row."""
    outcomes, row = _outcomes(build, limits), f"{CASES.index(case)}.{dtype}"
    if f"{row}.error" in outcomes:
        return RuntimeError(str(outcomes[f"{row}.error"]))
    results = [outcomes[f"{row}.{place}"] for place in range(len(case.output_shapes()))]
    if dtype == "bfloat16":
        import ml_dtypes

        results = [
            result.view(ml_dtypes.bfloat16) if result.itemsize == 2 else result
            for result in results
        ]
    return results[0] if len(results) == 1 else tuple(results)


def builds() -> list[str]:
    """The builds that run the table; ``.ci/emulator`` requests the slow ones."""
    return os.environ.get("NYSTRA_EMULATOR_BUILDS", "plain").split()


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]))
