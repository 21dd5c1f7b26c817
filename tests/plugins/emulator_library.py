"""The CUDA kernels compiled for the host under the block emulator: calling them.

A process loads one emulated library at most. This module needs numpy alone: it also runs in
processes with AddressSanitizer loaded first.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from conformance_case import Case
from emulator_build import EmulatorError
from nystra.plugins.operators import find_schema

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
STATUS = ("ok", "no workspace", "sizes that the kernel does not support", "launch", "refused")


@functools.cache
def load(path: Path) -> ctypes.CDLL:
    """The library; with the three builds' common entry points declared."""
    library = ctypes.CDLL(str(path))
    library.emulator_error.restype = ctypes.c_char_p
    library.emulator_switches.restype = ctypes.c_long
    library.emulator_most_shared.restype = ctypes.c_int64
    return library


def run(
    library: ctypes.CDLL, case: Case, arrays: list[np.ndarray], dtype: str, limits: tuple[int, ...]
) -> tuple[np.ndarray, ...]:
    """Run a row on the emulated kernels.

    Args:
        library: From ``load``.
        case: The row.
        arrays: Its inputs; bfloat16 as their bits in uint16.
        dtype: Of TYPES.
        limits: Shared bytes, warps and blocks a launch may use; shared bytes of the device, for
            kernels that ask.

    Returns:
        The outputs, of the types of the inputs.

    Raises:
        EmulatorError: The operator refused, or the emulator found a fault.
    """
    *launch, device = limits
    library.emulator_device(ctypes.c_int64(device))
    arrays = [np.ascontiguousarray(array) for array in arrays]
    schema = find_schema(case.operator)
    outputs = [
        np.empty(shape, np.int32 if name in schema.int32 else arrays[0].dtype)
        for name, shape in zip(schema.outputs, case.output_shapes(), strict=True)
    ]
    attributes = case.all_attributes()
    status = library.emulated_run(
        case.operator.encode(),
        (ctypes.c_char_p * len(attributes))(*(name.encode() for name in attributes)),
        (ctypes.c_double * len(attributes))(*attributes.values()),
        ctypes.c_int64(len(attributes)),
        TYPES[dtype],
        _integers(array.ndim for array in arrays),
        _integers(size for array in arrays for size in array.shape),
        _pointers(arrays),
        _pointers(outputs),
        _integers(launch),
    )
    if status:
        text = library.emulator_error().decode()
        raise EmulatorError(f"{case.operator}: {STATUS[status]}: {text}")
    return tuple(outputs)


def _integers(values: Iterable[int]) -> ctypes.Array[ctypes.c_int64]:
    numbers = [int(value) for value in values]
    return (ctypes.c_int64 * len(numbers))(*numbers)


def _pointers(arrays: list[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
