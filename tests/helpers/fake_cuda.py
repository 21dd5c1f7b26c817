"""A fake CUDA driver and TensorRT engine: plain memory, with a record of every call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np


class FakeCuda:
    """libcuda with plain memory instead of the device's, and a record of its calls.

    A stream that is captured keeps what is put on it, and a launched graph does it: with the
    addresses of then. Its clock takes a second for a copy and a millisecond for an engine's run.
    """

    def __init__(self) -> None:
        self.clock = 0.0
        self.events: dict[int, float | None] = {}
        self.memory: dict[int, Any] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.recording: list[Callable[[], None]] | None = None
        self.handles = 1000
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.fails:
                if name == "cuStreamEndCapture":
                    self.recording = None
                return self.fails[name]
            handler = {
                "cuMemAlloc_v2": self._allocate,
                "cuMemHostAlloc": self._allocate,
                "cuMemFree_v2": self._free,
                "cuMemFreeHost": self._free,
                "cuMemcpyHtoDAsync_v2": self._copy,
                "cuMemcpyDtoHAsync_v2": self._copy,
                "cuMemGetInfo_v2": self._information,
                "cuEventCreate": self._create_event,
                "cuEventRecord": self._record_event,
                "cuEventElapsedTime": self._elapsed,
                "cuEventDestroy_v2": self._destroy_event,
                "cuStreamCreate": self._stream,
                "cuStreamBeginCapture_v2": self._begin,
                "cuStreamEndCapture": self._end,
                "cuGraphInstantiateWithFlags": self._instantiate,
                "cuGraphLaunch": self._launch,
                "cuGraphDestroy": self._destroy,
                "cuGraphExecDestroy": self._destroy,
            }.get(name)
            if handler is not None:
                handler(*arguments)
            return 0

        return call

    def put(self, work: Callable[[], None]) -> None:
        """Run an operation now, or store it in the graph."""
        if self.recording is None:
            work()
        else:
            self.recording.append(work)

    def since(self, mark: int) -> list[str]:
        """Return the calls, without those that only set the context."""
        return [name for name in self.calls[mark:] if name != "cuCtxSetCurrent"]

    def _handle(self, pointer: Any, work: list[Callable[[], None]]) -> None:
        self.handles += 1
        self.graphs[self.handles] = work
        pointer._obj.value = self.handles

    def _allocate(self, pointer: Any, size: ctypes.c_size_t, *_: Any) -> None:
        assert self.recording is None, "nothing may be allocated while a stream is captured"
        block = ctypes.create_string_buffer(size.value)
        address = ctypes.addressof(block)
        self.memory[address] = block
        pointer._obj.value = address

    def _free(self, pointer: ctypes.c_void_p) -> None:
        del self.memory[pointer.value or 0]

    def _copy(self, target: Any, source: Any, size: Any, _stream: Any) -> None:
        def work() -> None:
            ctypes.memmove(target, source, size.value)
            self.clock += 1.0

        self.put(work)

    def _create_event(self, pointer: Any, flags: Any) -> None:
        assert flags.value == 0, "an event without times"
        self.handles += 1
        self.events[self.handles] = None
        pointer._obj.value = self.handles

    def _record_event(self, event: Any, stream: Any) -> None:
        assert (stream.value, self.recording) == (7, None), "no event belongs into a graph"
        self.events[event.value] = self.clock

    def _elapsed(self, milliseconds: Any, start: Any, end: Any) -> None:
        first, last = self.events[start.value], self.events[end.value]
        assert first is not None
        assert last is not None
        milliseconds._obj.value = 1e3 * (last - first)

    def _destroy_event(self, event: Any) -> None:
        del self.events[event.value]

    def _information(self, free: Any, total: Any) -> None:
        total._obj.value = 1 << 30
        free._obj.value = (1 << 30) - sum(len(block) for block in self.memory.values())

    def _stream(self, pointer: Any, _flags: Any) -> None:
        pointer._obj.value = 7

    def _begin(self, stream: Any, mode: Any) -> None:
        assert (stream.value, mode.value, self.recording) == (7, 1, None)
        self.recording = []

    def _end(self, stream: Any, graph: Any) -> None:
        assert self.recording is not None
        work, self.recording = self.recording, None
        self._handle(graph, work)

    def _instantiate(self, executable: Any, graph: Any, flags: Any) -> None:
        assert flags.value == 0
        self._handle(executable, self.graphs[graph.value])

    def _launch(self, executable: Any, stream: Any) -> None:
        assert stream.value == 7
        for work in self.graphs[executable.value]:
            work()

    def _destroy(self, graph: Any) -> None:
        del self.graphs[graph.value]


class FakeContext:
    """Doubles the image's height and width by repeating pixels; supports heights up to 16."""

    capturable = True

    def __init__(self, library: FakeCuda) -> None:
        self.library = library
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.touched = 0

    def is_stream_capturable(self, stream: int) -> bool:
        assert stream == 7
        return self.capturable

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.touched += 1
        self.shapes[name] = tuple(shape)
        return shape[2] <= 16

    def infer_shapes(self) -> list[str]:
        return []

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        b, c, h, w = self.shapes["input"]
        return (b, c, 2 * h, 2 * w) if name == "output" else (b, c, h, w)

    def set_tensor_address(self, name: str, address: int) -> None:
        self.touched += 1
        self.addresses[name] = address

    def execute_async_v3(self, _stream: int) -> bool:
        self.library.calls.append("enqueue")
        if "enqueue" in self.library.fails:
            return False
        shape, addresses = self.shapes["input"], dict(self.addresses)

        def work() -> None:
            size = int(np.prod(shape))
            memory = (ctypes.c_char * (4 * size)).from_address(addresses["input"])
            image = np.frombuffer(memory, np.float32).reshape(shape)
            large = image.repeat(2, 2).repeat(2, 3)
            ctypes.memmove(addresses["output"], large.tobytes(), large.nbytes)
            self.library.clock += 1e-3

        self.library.put(work)
        return True


class FakeEngine:
    """An engine with one open input and one output."""

    num_io_tensors = 2

    def __init__(self, library: FakeCuda) -> None:
        self.library = library

    def get_tensor_name(self, index: int) -> str:
        return ("input", "output")[index]

    def get_tensor_mode(self, name: str) -> str:
        return name

    def get_tensor_dtype(self, name: str) -> str:
        return "DataType.FLOAT"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (-1, 3, -1, -1)

    def create_execution_context(self) -> FakeContext:
        return FakeContext(self.library)
