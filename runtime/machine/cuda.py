"""The few calls of the CUDA driver that a backend needs, by ctypes: no CUDA package is imported."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ...core.errors import BackendUnavailableError, NystraError

_LIBRARY = "libcuda.so.1"
_OUT_OF_MEMORY = 2
_NON_BLOCKING = 1
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads may allocate meanwhile


class Driver:
    """The driver with the primary context of the first device, which TensorRT uses too.

    Memory and streams are plain numbers; every call that fails raises.
    """

    def __init__(self, open_library: Callable[[str], Any] = ctypes.CDLL) -> None:
        """Retain the context.

        Args:
            open_library: Opens the driver's library; another one for tests.

        Raises:
            BackendUnavailableError: There is no driver or no device.
        """
        try:
            self._library = open_library(_LIBRARY)
        except OSError as error:
            raise BackendUnavailableError(f"no NVIDIA driver is installed ({error})") from error
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if self._library.cuInit(0) or self._library.cuDeviceGet(ctypes.byref(device), 0):
            raise BackendUnavailableError("the NVIDIA driver finds no GPU")
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context, self._device = context, device

    def activate(self) -> None:
        """Make the context that of the calling thread."""
        self._call("cuCtxSetCurrent", self._context)

    def allocate(self, size: int) -> int:
        """Return device memory of at least one byte.

        Raises:
            NystraError: The device's memory does not suffice.
        """
        pointer = ctypes.c_void_p()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        return pointer.value or 0

    def free(self, pointer: int) -> None:
        """Free device memory."""
        self._call("cuMemFree_v2", ctypes.c_void_p(pointer))

    def allocate_pinned(self, size: int) -> int:
        """Return page-locked memory of this machine."""
        pointer = ctypes.c_void_p()
        size_t = ctypes.c_size_t(max(size, 1))
        self._call("cuMemHostAlloc", ctypes.byref(pointer), size_t, ctypes.c_uint(0))
        return pointer.value or 0

    def free_pinned(self, pointer: int) -> None:
        """Free page-locked memory."""
        self._call("cuMemFreeHost", ctypes.c_void_p(pointer))

    def stream(self) -> int:
        """Return a new stream that waits for no other."""
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        return stream.value or 0

    def free_stream(self, stream: int) -> None:
        """Destroy a stream."""
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def to_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Put a copy to the device on the stream."""
        self._copy("cuMemcpyHtoDAsync_v2", target, source, size, stream)

    def to_host(self, target: int, source: int, size: int, stream: int) -> None:
        """Put a copy from the device on the stream."""
        self._copy("cuMemcpyDtoHAsync_v2", target, source, size, stream)

    def wait(self, stream: int) -> None:
        """Wait until everything on the stream is done."""
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def event(self) -> int:
        """Return a new event that can be timed."""
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        return event.value or 0

    def record(self, event: int, stream: int) -> None:
        """Put an event on the stream: its time is when all before it is done."""
        self._call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def seconds_between(self, start: int, end: int) -> float:
        """Return the seconds from one event to another; both are done."""
        milliseconds = ctypes.c_float()
        events = (ctypes.c_void_p(start), ctypes.c_void_p(end))
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), *events)
        return milliseconds.value / 1e3

    def free_event(self, event: int) -> None:
        """Destroy an event."""
        self._call("cuEventDestroy_v2", ctypes.c_void_p(event))

    def begin_capture(self, stream: int) -> None:
        """Record what is put on the stream from now on instead of doing it."""
        self._call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), ctypes.c_int(_THREAD_LOCAL))

    def end_capture(self, stream: int) -> int:
        """End the recording, whatever became of it, and return the graph.

        Raises:
            NystraError: Something on the stream could not be recorded.
        """
        graph = ctypes.c_void_p()
        self._call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
        return graph.value or 0

    def instantiate(self, graph: int) -> int:
        """Return what can be launched of a recorded graph, which stays."""
        executable = ctypes.c_void_p()
        flags = ctypes.c_ulonglong(0)
        name = "cuGraphInstantiateWithFlags"
        self._call(name, ctypes.byref(executable), ctypes.c_void_p(graph), flags)
        return executable.value or 0

    def free_graph(self, graph: int) -> None:
        """Destroy a recorded graph."""
        self._call("cuGraphDestroy", ctypes.c_void_p(graph))

    def launch(self, executable: int, stream: int) -> None:
        """Put what `instantiate` returned on the stream."""
        self._call("cuGraphLaunch", ctypes.c_void_p(executable), ctypes.c_void_p(stream))

    def free_executable(self, executable: int) -> None:
        """Destroy what `instantiate` returned."""
        self._call("cuGraphExecDestroy", ctypes.c_void_p(executable))

    def memory_in_use(self) -> int:
        """Return the bytes of the device's memory that are taken, by every process together."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value

    def release(self) -> None:
        """Release the context; no calls are possible afterwards."""
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _copy(self, name: str, target: int, source: int, size: int, stream: int) -> None:
        pointers = (ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(size))
        self._call(name, *pointers, ctypes.c_void_p(stream))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status == _OUT_OF_MEMORY:
            raise NystraError(
                "not enough GPU memory: use smaller tiles (`tile`); see docs/running.md"
            )
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            message = (text.value or b"unknown").decode(errors="replace")
            raise NystraError(f"the CUDA driver failed in {name}: {message} ({status})")
