"""The CUDA kernels compiled for the host under the block emulator: calling them.

A process loads one emulated library at most. This module needs numpy alone: it also runs in
processes with AddressSanitizer loaded first.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import numpy as np

from conformance_case import Case
from emulator_build import EmulatorError

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
STATUS = {0: "ok", 1: "no workspace", 2: "sizes beyond what the kernel was made for", 3: "launch"}


@functools.cache
def load(path: Path) -> ctypes.CDLL:
    """The library; with the three builds' common entry points declared."""
    library = ctypes.CDLL(str(path))
    library.emulator_error.restype = ctypes.c_char_p
    library.emulator_switches.restype = ctypes.c_long
    library.emulator_most_shared.restype = ctypes.c_int64
    return library


def _numbers(*values: int) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*map(int, values))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def run(
    library: ctypes.CDLL, case: Case, arrays: list[np.ndarray], dtype: str, limits: tuple[int, ...]
) -> tuple[np.ndarray, ...]:
    """Run a row on the emulated kernels.

    Args:
        library: From ``load``.
        case: The row; its attributes are not checked.
        arrays: Its inputs; bfloat16 as their bits in uint16.
        dtype: Of TYPES.
        limits: Shared bytes, warps and blocks a launch may use; 1 for tensor cores, else 0; shared
            bytes of the device, for kernels that ask.

    Returns:
        The outputs, of the types of the inputs.

    Raises:
        EmulatorError: The kernel refused, or the emulator found a fault.
    """
    *launch, device = limits
    library.emulator_device(ctypes.c_int64(device))
    arrays = [np.ascontiguousarray(array) for array in arrays]
    outputs = [np.empty(shape, arrays[0].dtype) for shape in case.output_shapes()]
    call = {
        "NystraPinv": _pinv,
        "NystraWindowSoftmax": _softmax_windows,
        "NystraWindowOverlap": _softmax_windows,
        "NystraWindowNystrom": _landmark_windows,
        "NystraWindowNystromformer": _landmark_windows,
        "NystraPatchMatch": _patch_match,
        "NystraWindowCluster": _window_cluster,
    }[case.operator]
    if case.operator == "NystraPatchMatch":
        outputs[0] = np.empty(outputs[0].shape, np.int32)
    status = call(library, case, arrays, outputs, TYPES[dtype], _numbers(*launch))
    if status:
        text = library.emulator_error().decode()
        raise EmulatorError(f"{case.operator}: {STATUS[status]}: {text}")
    return tuple(outputs)


def _pinv(library, case, arrays, outputs, kind, limits):  # type: ignore[no-untyped-def]
    attributes = case.all_attributes()
    m = case.shape[-1]
    sizes = _numbers(arrays[0].size // (m * m), m, attributes["iterations"])
    init = int(attributes["batch_init"])
    return library.emulated_pinv(
        sizes, init, kind, _pointer(arrays[0]), _pointer(outputs[0]), limits
    )


def _window_sizes(case: Case):  # type: ignore[no-untyped-def]
    attributes = case.all_attributes()
    names = ["heads", "head_dim", "value_dim", "window_h", "window_w", "shift_h", "shift_w", "mask"]
    sizes = _numbers(*case.shape[:3], *(attributes.get(name, 0) for name in names))
    return sizes, ctypes.c_float(attributes["scale"])


def _softmax_windows(library, case, arrays, outputs, kind, limits):  # type: ignore[no-untyped-def]
    attributes = case.all_attributes()
    margins = _numbers(*(attributes.get(name, 0) for name in ("margin_h", "margin_w")))
    table = _pointer(arrays[1]) if attributes["bias"] else None
    qkv, out = _pointer(arrays[0]), _pointer(outputs[0])
    return library.emulated_softmax_windows(
        int(case.operator == "NystraWindowOverlap"),
        *_window_sizes(case),
        margins,
        kind,
        qkv,
        table,
        out,
        limits,
    )


def _window_cluster(library, case, arrays, outputs, kind, limits):  # type: ignore[no-untyped-def]
    attributes = case.all_attributes()
    names = ["cluster_rows", "cluster_cols", "rounds", "block", "bias_block"]
    clusters = _numbers(*(attributes[name] for name in names))
    table = _pointer(arrays[1]) if attributes["bias"] else None
    qkv, out = _pointer(arrays[0]), _pointer(outputs[0])
    sizes = _window_sizes(case)
    return library.emulated_window_cluster(*sizes, clusters, kind, qkv, table, out, limits)


def _landmark_windows(library, case, arrays, outputs, kind, limits):  # type: ignore[no-untyped-def]
    attributes = case.all_attributes()
    names = ["landmark_rows", "landmark_cols", "iterations"]
    return library.emulated_landmark_windows(
        int(case.operator == "NystraWindowNystromformer"),
        *_window_sizes(case),
        _numbers(*(attributes[name] for name in names)),
        ctypes.c_float(attributes.get("threshold", 0)),
        ctypes.c_float(attributes.get("guard", 0)),
        int(attributes["batch_init"]),
        kind,
        _pointer(arrays[0]),
        _pointer(outputs[0]),
        limits,
    )


def _steps(array: np.ndarray) -> list[int]:
    """The step to the next element along each axis, 0 along axes that are broadcast."""
    return [
        0 if size == 1 else stride // array.itemsize
        for size, stride in zip(array.shape, array.strides, strict=True)
    ]


def _patch_match(library, case, arrays, outputs, kind, limits):  # type: ignore[no-untyped-def]
    attributes = case.all_attributes()
    query, key, _query_mask, key_mask, start = arrays
    names = ["patch_size", "iterations", "neighbors", "metric", "seed"]
    masks = [[step for i, step in enumerate(_steps(array)) if i != 1] for array in arrays[2:4]]
    return library.emulated_patch_match(
        _numbers(*query.shape, *key.shape[2:]),
        _numbers(*(attributes[name] for name in names)),
        int(key_mask[0].size > 1),
        kind,
        (ctypes.c_void_p * 5)(*(array.ctypes.data for array in arrays)),
        _numbers(*(array.size for array in arrays)),
        _numbers(*masks[0], *masks[1], *_steps(start)),
        _pointer(outputs[0]),
        _pointer(outputs[1]),
        limits,
    )
