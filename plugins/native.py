"""The CPU kernels on numpy arrays, by their C interface (``csrc/nystra_cpu.h``). Needs numpy alone.

If the library is not built, `available` returns False and `run` raises. The environment variable
``NYSTRA_CPU_ISA`` chooses the instruction set.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.cpus import usable_cpus
from ..core.errors import BackendUnavailableError, NystraError
from .c_interface import LIST, TYPES, CTensor, check, describe_tensor, open_library, request
from .library import CPU_LIBRARY
from .operators import find_schema

__all__ = ["available", "outputs", "run"]

Arrays = list[npt.NDArray[np.generic]]
Described = tuple[tuple[int, ...], str]
"""Shape and type of an array, such as ((1, 8, 8, 36), "float32")."""

_INTERFACE = 2
_MAX_THREADS = (1 << 31) - 1


@functools.cache
def _library() -> ctypes.CDLL:
    library = open_library(CPU_LIBRARY, _INTERFACE)
    library.nystra_isa.restype = ctypes.c_char_p
    library.nystra_cpu_outputs.argtypes = (ctypes.c_char_p, *LIST * 3)
    library.nystra_cpu_run.argtypes = (ctypes.c_char_p, *LIST * 3, ctypes.c_int32)
    if library.nystra_isa() is None:
        raise BackendUnavailableError(
            f"NYSTRA_CPU_ISA is {os.environ.get('NYSTRA_CPU_ISA')!r}; expected an instruction set "
            "that this CPU and this build have, or unset it"
        )
    return library


@functools.cache
def available() -> bool:
    """Return whether the kernels are installed and run on this machine."""
    try:
        _library()
    except (BackendUnavailableError, OSError):
        return False
    return True


def run(
    operator: str,
    inputs: Sequence[npt.NDArray[np.generic]],
    attributes: Mapping[str, int | float],
    threads: int | None = None,
    new: Callable[[tuple[int, ...], str], npt.NDArray[np.generic]] = np.empty,
    kinds: Sequence[str] | None = None,
) -> Arrays:
    """Return the outputs of an operator.

    Args:
        operator: The node type, such as ``NystraPinv``.
        inputs: In the order of the schema: all float32, float16 or bfloat16, and int32 where the
            schema has that type. They are copied if they are not contiguous, or not in the
            machine's byte order.
        attributes: By name; omitted ones have their defaults.
        threads: The largest number of threads; None: one per CPU of this process.
        new: Allocates an output of a shape and type; its memory is written, never read. numpy has
            bfloat16 if ml_dtypes is imported; any type of two bytes is accepted.
        kinds: The type of each input, if its array is only memory of that size; None: the types of
            the arrays.

    Raises:
        NystraError: The operator refuses the attributes or the inputs; the message says why.
        MemoryError: There is not enough memory, or no thread could be started.
        FileNotFoundError: The library was not built.
        OSError: The library cannot be loaded on this machine.
        BackendUnavailableError: The library has no kernels for this machine.
    """
    arrays = [_native(array) for array in inputs]
    types = [array.dtype.name for array in arrays] if kinds is None else kinds
    called = request(operator, list(map(_tensor, arrays, types)), attributes)
    described = _describe(operator, called)
    filled = [new(shape, kind) for shape, kind in described]
    results = (CTensor * len(filled))(*map(_tensor, filled, (kind for _, kind in described)))
    threads = usable_cpus() if threads is None else threads
    if not 1 <= threads <= _MAX_THREADS:
        raise NystraError(f"`threads` is {threads}; expected 1 to {_MAX_THREADS}")
    library = _library()
    status = library.nystra_cpu_run(*called, results, len(results), threads)
    check(status, library.nystra_cpu_error, MemoryError)
    return filled


def outputs(
    operator: str, inputs: Sequence[Described], attributes: Mapping[str, int | float]
) -> list[Described]:
    """Return shape and type of each output of an operator, without computing it.

    Args:
        operator: The node type, such as ``NystraPinv``.
        inputs: Shape and type of each input, as `run` takes them.
        attributes: As `run` takes them.

    Raises:
        NystraError: The operator refuses the attributes or the inputs; the message says why.
        FileNotFoundError: The library was not built.
        OSError: The library cannot be loaded on this machine.
        BackendUnavailableError: The library has no kernels for this machine.
    """
    tensors = [describe_tensor(None, shape, kind) for shape, kind in inputs]
    return _describe(operator, request(operator, tensors, attributes))


def _native(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array)


def _describe(operator: str, called: tuple[Any, ...]) -> list[Described]:
    library, described = _library(), (CTensor * len(find_schema(operator).outputs))()
    status = library.nystra_cpu_outputs(*called, described, len(described))
    check(status, library.nystra_cpu_error, MemoryError)
    types = list(TYPES)
    return [(tuple(array.shape[: array.rank]), types[array.type]) for array in described]


def _tensor(array: npt.NDArray[np.generic], kind: str) -> CTensor:
    return describe_tensor(array.ctypes.data, array.shape, kind)
