"""The backend ``tensorrt``: engines that `nystra build` made, on an NVIDIA GPU."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError, NystraError
from ..engines import cache, toolkit
from ..engines.model import LIBRARY, EngineModel
from ..machine import gpu
from ..machine.cuda import Driver
from ..model.model_ports import TensorInfo
from ._cuda_graph import CudaGraph, graphs_wanted
from ._engine_choice import CachedEngine, engine_taking, engines_for
from .base import Backend

_DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}


@dataclass
class _Buffer:
    """Device memory and page-locked memory of one tensor, which grow if needed and are reused."""

    driver: Driver
    size: int = 0
    device: int = 0
    pinned: int = 0

    def reserve(self, size: int) -> None:
        """Grow to at least this number of bytes."""
        if size <= self.size and self.device:
            return
        self.release()
        self.device = self.driver.allocate(size)
        self.pinned = self.driver.allocate_pinned(size)
        self.size = size

    def release(self) -> None:
        """Free both."""
        if self.device:
            self.driver.free(self.device)
        if self.pinned:
            self.driver.free_pinned(self.pinned)
        self.size = self.device = self.pinned = 0

    def view(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return the page-locked memory as an array."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        data = memoryview((ctypes.c_ubyte * size).from_address(self.pinned)).cast("B")
        return np.frombuffer(data, np.uint8).view(kind).reshape(shape)


@dataclass
class _Held:
    """All resources of a backend on the device, in the order of their release.

    Attributes:
        driver: Calls the device.
        stream: The stream of all operations.
        graph: The engine's recorded work.
        events: Start and end of the engine's work, where it is timed.
        buffers: Tensor name -> its memory.
        context: TensorRT's execution context, released before its engine.
        engine: The engine.
        loaded: The file of that engine, and its record.
        runtime: TensorRT's runtime, which the engine needs alive.
        logger: The logger, which the runtime needs alive.
    """

    driver: Driver
    stream: int
    graph: CudaGraph
    events: list[int] = field(default_factory=list)
    buffers: dict[str, _Buffer] = field(default_factory=dict)
    context: Any = None
    engine: Any = None
    loaded: CachedEngine | None = None
    runtime: Any = None
    logger: Any = None

    def release(self) -> None:
        """Release everything; calls that fail are ignored, since nothing is left to save."""
        with contextlib.suppress(NystraError):
            self.driver.activate()
            self.driver.wait(self.stream)
        steps = [self.graph.forget, *(buffer.release for buffer in self.buffers.values())]
        for step in steps:
            with contextlib.suppress(NystraError):
                step()
        for event in self.events:
            with contextlib.suppress(NystraError):
                self.driver.free_event(event)
        self.context = self.engine = self.runtime = self.logger = None
        with contextlib.suppress(NystraError):
            self.driver.free_stream(self.stream)
        with contextlib.suppress(NystraError):
            self.driver.release()


class TensorrtBackend(Backend):
    """TensorRT on the first GPU.

    The first run at some shapes is a plain one. In the second one of the same shapes the engine's
    work is recorded as a CUDA graph, and later ones launch that; the environment variable
    NYSTRA_CUDA_GRAPH=0 keeps all runs plain. If the cache has engines of a model for
    several shapes, a run uses the newest that accepts its shapes; one is loaded at a time.
    """

    device: ClassVar[str] = "cuda"
    engine: ClassVar[str] = toolkit.TENSORRT
    precisions: ClassVar[frozenset[str]] = frozenset(
        {"fp32", "fp16", "int8", "bf16", "bf16-tensorrt"}
    )
    library_name: ClassVar[str] = LIBRARY

    def load(self) -> None:
        """Load the newest engine that the cache has of this model.

        Raises:
            BackendUnavailableError: There is no builder, no GPU, or no engine of this model.
            NystraError: The engine cannot be loaded.
        """
        usable, reason = self.available()
        if not usable:
            raise BackendUnavailableError(reason)
        model = EngineModel.open(self.path, str(self.spec.library))
        self.library = model.library
        self.library_reason = model.library_reason
        self._toolkit = toolkit.load(self.engine)
        self._engines = engines_for(model, self._toolkit)
        wanted, driver = graphs_wanted(), Driver()
        driver.activate()
        stream = driver.stream()
        self._held = held = _Held(driver, stream, CudaGraph(driver, stream, wanted))
        weakref.finalize(self, held.release)
        self._lock = threading.Lock()
        self._start_runtime()
        self._load(self._engines[0])
        tensors = [self._tensor(name) for name in self._names()]
        mode = self._toolkit.module.TensorIOMode.INPUT
        inputs = {n for n in self._names() if held.engine.get_tensor_mode(n) == mode}
        self.inputs = tuple(tensor for tensor in tensors if tensor.name in inputs)
        self.outputs = tuple(tensor for tensor in tensors if tensor.name not in inputs)
        held.buffers.update((tensor.name, _Buffer(driver)) for tensor in tensors)
        self._shapes: dict[str, tuple[int, ...]] = {}

    @classmethod
    def available(cls) -> tuple[bool, str]:
        """Return whether the builder and a GPU are here, and a sentence with the reason."""
        try:
            toolkit.require(cls.engine)
        except BackendUnavailableError as error:
            return False, str(error)
        device = gpu.find_device()
        if isinstance(device, str):
            return False, f"{cls.engine} runs on an NVIDIA GPU: {device}"
        return True, f"{cls.engine} on {device.name}"

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model once; calls from several threads wait for each other.

        Raises:
            NystraError: No engine takes these shapes, or the GPU failed.
        """
        with self._lock:
            self._run(feeds, self._compute)
            return {
                output.name: self._held.buffers[output.name]
                .view(self._shapes[output.name], output.dtype)
                .copy()
                for output in self.outputs
            }

    def time_on_device(self, feeds: Mapping[str, Array]) -> float | None:
        """Run as `infer`; return the seconds between events around the engine's work."""
        held = self._held
        driver = held.driver

        def between_events(again: bool) -> None:
            while len(held.events) < 2:
                held.events.append(driver.event())
            # What is recorded first is no part of the time.
            self._record_run(again)
            driver.record(held.events[0], held.stream)
            self._compute(False)
            driver.record(held.events[1], held.stream)

        with self._lock:
            self._run(feeds, between_events)
            return driver.seconds_between(*held.events)

    def _run(self, feeds: Mapping[str, Array], compute: Callable[[bool], None]) -> None:
        """Run on these inputs; the outputs are in the page-locked memory.

        Args:
            feeds: Input name -> array.
            compute: Puts the engine's work on the stream; told whether these shapes ran before.
        """
        held = self._held
        held.driver.activate()
        try:
            again = self._bring(feeds)
            compute(again)
            for output in self.outputs:
                buffer, size = held.buffers[output.name], self._size(output)
                held.driver.to_host(buffer.pinned, buffer.device, size, held.stream)
            held.driver.wait(held.stream)
        except BaseException:
            self._shapes = {}  # the state of the context and the buffers is unknown now
            with contextlib.suppress(NystraError):
                held.graph.forget()
            raise

    def _bring(self, feeds: Mapping[str, Array]) -> bool:
        """Put the copies of the inputs on the stream; return whether their shapes ran before."""
        held = self._held
        arrays = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        again = bool(self._shapes) and all(
            self._shapes[name] == array.shape for name, array in arrays.items()
        )
        if not again:
            held.graph.forget()
            self._shapes = {}
            self._shapes = self._prepare(arrays)
        for name, array in arrays.items():
            buffer = held.buffers[name]
            buffer.view(array.shape, array.dtype.name)[...] = array
            held.driver.to_device(buffer.device, buffer.pinned, array.nbytes, held.stream)
        return again

    def _compute(self, again: bool) -> None:
        """Put the engine's work on the stream, as a graph where there is one."""
        if self._record_run(again):
            self._held.graph.launch()
        else:
            self._enqueue()

    def _record_run(self, again: bool) -> bool:
        """Return whether there is a graph; record one if shapes ran before and it is possible."""
        held = self._held
        if held.graph.ready or not again:
            return held.graph.ready
        # TensorRT-RTX may still compile kernels for these shapes; TensorRT has no such question.
        can = getattr(held.context, "is_stream_capturable", lambda _stream: True)
        return held.graph.wanted and can(held.stream) and held.graph.record(self._enqueue)

    def _prepare(self, arrays: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        """Load the engine of these shapes, give its context shapes and addresses.

        Returns:
            Tensor name -> shape, of all tensors.
        """
        held = self._held
        self._load(engine_taking(self._engines, {name: a.shape for name, a in arrays.items()}))
        context, shapes = held.context, {}
        for name, array in arrays.items():
            if not context.set_input_shape(name, array.shape):
                raise NystraError(
                    f"the engine does not accept the shape {array.shape} of {name!r}: see "
                    "TensorRT's log above"
                )
        if context.infer_shapes():
            raise NystraError(
                f"the shapes of {sorted(arrays)} do not determine all shapes of the engine"
            )
        for tensor in (*self.inputs, *self.outputs):
            shape = shapes[tensor.name] = tuple(context.get_tensor_shape(tensor.name))
            count = int(np.prod(shape, dtype=np.int64))
            buffer = held.buffers[tensor.name]
            buffer.reserve(count * np.dtype(tensor.dtype).itemsize)
            context.set_tensor_address(tensor.name, buffer.device)
        return shapes

    def _enqueue(self) -> None:
        """Put the engine's work on the stream."""
        if not self._held.context.execute_async_v3(self._held.stream):
            raise NystraError(f"{self.engine} could not run the engine: see the log above")

    def _size(self, tensor: TensorInfo) -> int:
        """Return the bytes of a tensor in this run."""
        return (
            int(np.prod(self._shapes[tensor.name], dtype=np.int64))
            * np.dtype(tensor.dtype).itemsize
        )

    def _start_runtime(self) -> None:
        module, held = self._toolkit.module, self._held
        held.logger = module.Logger(module.Logger.WARNING)
        held.runtime = module.Runtime(held.logger)
        if self.library is not None:
            held.runtime.get_plugin_registry().load_library(str(self.library))

    def _load(self, engine: CachedEngine) -> None:
        """Load an engine in place of the one that is loaded, unless it is that one."""
        held = self._held
        if engine == held.loaded:
            return
        path, record = engine
        held.loaded = held.context = held.engine = None
        cache.verify(path, record)
        held.engine = held.runtime.deserialize_cuda_engine(path.read_bytes())
        held.context = None if held.engine is None else held.engine.create_execution_context()
        if held.context is None:
            raise NystraError(
                f"{self.engine} {self._toolkit.version} cannot load the engine (see its log "
                "above): build it again with nystra build --rebuild; see docs/gpu.md"
            )
        held.loaded = engine

    def _names(self) -> list[str]:
        engine = self._held.engine
        return [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]

    def _tensor(self, name: str) -> TensorInfo:
        engine = self._held.engine
        kind = str(engine.get_tensor_dtype(name)).rpartition(".")[2]
        if kind not in _DTYPES:
            raise NystraError(f"the engine's {name!r} is {kind}; expected {', '.join(_DTYPES)}")
        shape = tuple(None if size < 0 else int(size) for size in engine.get_tensor_shape(name))
        return TensorInfo(name, shape, _DTYPES[kind])
