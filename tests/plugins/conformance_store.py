"""The outputs of the references for all rows, stored in files for later processes.

They take long for the whole table, most of all under sanitizers, and some ten processes replay
it: the columns on every build of the kernels. So do the plain functions that measure how difficult
a row is. A change of an operator's Python, of the table, of numpy or of PyTorch begins anew; a
folder that the variable NYSTRA_EXPECTED names is used as it is.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from conformance_case import Outputs
from nystra.plugins import operators

HERE = Path(__file__).resolve().parent
STORE = HERE.parents[1] / "build" / "expected"

STORE_VARIABLE = "NYSTRA_EXPECTED"
"""Names a folder that `enqueue_table.py expected` filled, on another machine maybe."""


@functools.cache
def _folder() -> Path:
    if os.environ.get(STORE_VARIABLE):
        return Path(os.environ[STORE_VARIABLE])
    digest = hashlib.sha256(f"{np.__version__} {version('torch')}".encode())
    package = Path(operators.__file__).parent
    names = ("conformance_*.py", "*_case.py", "operators/*.py", "reference/*.py")
    table = [HERE.glob(name) for name in names]
    for file in [*sorted(package.rglob("*.py")), *sorted(file for part in table for file in part)]:
        digest.update(file.name.encode() + file.read_bytes())
    folder = STORE / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for other in STORE.iterdir():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def stored(name: str, compute: Callable[[], Outputs]) -> Outputs:
    """Return the stored value of a name, computed if there is none."""
    file = _folder() / f"{name}.npz"
    if file.exists():
        with np.load(file) as arrays:
            outputs = tuple(arrays[key] for key in sorted(arrays))
        return outputs if len(outputs) > 1 else outputs[0]
    computed = compute()
    save(file, computed if isinstance(computed, tuple) else (computed,))
    return computed


def save(file: Path, arrays: Sequence[np.ndarray]) -> None:
    """Write what `stored` reads, as a whole or not at all."""
    unfinished = file.with_suffix(f".{os.getpid()}")
    with unfinished.open("wb") as stream:
        np.savez(stream, *arrays)
    unfinished.replace(file)
