"""The CUDA kernels on tensors in device memory, by their C interface (``csrc/nystra_cuda.h``).

The functions take addresses and put work on a stream: the memory belongs to the caller, for
instance PyTorch. If the library is not built, `missing` returns the reason and `run` raises.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence

from ..core.errors import BackendUnavailableError
from .c_interface import LIST, CTensor, check, described_tensor, open_library, request
from .library import CUDA_KERNELS

__all__ = ["DeviceTensor", "missing", "run"]

DeviceTensor = tuple[int, tuple[int, ...], str]
"""Address, shape and type of a contiguous tensor, such as ``(address, (1, 4, 4), "float16")``."""

_INTERFACE = 1


@functools.cache
def _library() -> ctypes.CDLL:
    library = open_library(CUDA_KERNELS, _INTERFACE)
    library.nystra_cuda_workspace.argtypes = (
        *(ctypes.c_char_p, *LIST * 2, ctypes.c_size_t),
        ctypes.POINTER(ctypes.c_size_t),
    )
    library.nystra_cuda_run.argtypes = (
        *(ctypes.c_char_p, *LIST * 3),
        *(ctypes.c_void_p, ctypes.c_void_p),
    )
    return library


@functools.cache
def missing() -> str | None:
    """Return why the kernels cannot be called on this machine, or None."""
    try:
        _library()
    except (BackendUnavailableError, OSError) as error:
        return str(error)
    return None


def run(
    operator: str,
    inputs: Sequence[DeviceTensor],
    attributes: Mapping[str, int | float],
    outputs: Sequence[DeviceTensor],
    allocate: Callable[[int], int],
    stream: int,
) -> None:
    """Enqueue an operator on a stream of the current device, and return before it is done.

    Args:
        operator: The node type, such as ``NystraPinv``.
        inputs: In the order of the schema.
        attributes: By name; omitted ones have their defaults.
        outputs: The outputs to write, which overlap nothing.
        allocate: Takes a number of bytes and returns the address, a multiple of 256, of device
            memory that nothing else uses until the work is done. It is called at most once.
        stream: A ``cudaStream_t`` as a number.

    Raises:
        NystraError: The operator refuses the attributes or the inputs; the message says why.
        RuntimeError: CUDA did not launch the kernel.
        FileNotFoundError: The library was not built.
        OSError: The library cannot be loaded on this machine.
        BackendUnavailableError: The library has another interface.
    """
    library = _library()
    called = request(operator, [described_tensor(*tensor) for tensor in inputs], attributes)
    size = ctypes.c_size_t()
    status = library.nystra_cuda_workspace(*called, len(outputs), ctypes.byref(size))
    check(status, library.nystra_cuda_error, RuntimeError)
    results = (CTensor * len(outputs))(*(described_tensor(*tensor) for tensor in outputs))
    workspace = allocate(size.value) if size.value else None
    status = library.nystra_cuda_run(*called, results, len(results), workspace, stream)
    check(status, library.nystra_cuda_error, RuntimeError)
