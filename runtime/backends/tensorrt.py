"""The backend ``tensorrt``: engines that `nystra build` made, on an NVIDIA GPU."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ...plugins.errors import BackendUnavailableError, NystraError
from ..engines import cache, toolkit
from ..engines.model import EngineModel
from ..engines.record import EngineRecord
from ..facts import TensorInfo
from ..onnx_header import OnnxHeader
from ._cuda import Driver

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
    """Device memory and page-locked memory of one tensor, which grow and are kept."""

    driver: Driver
    size: int = 0
    device: int = 0
    pinned: int = 0

    def reserve(self, size: int) -> None:
        """Have room for so many bytes."""
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

    def view(self, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        """Return the page-locked memory as an array."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        data = memoryview((ctypes.c_ubyte * size).from_address(self.pinned)).cast("B")
        return np.frombuffer(data, np.uint8).view(kind).reshape(shape)


@dataclass
class _Loaded:
    """A deserialised engine and what must live as long as it."""

    engine: Any
    context: Any
    keep: list[Any] = field(default_factory=list)


class TensorrtBackend:
    """TensorRT on the first GPU; see `Backend` for the attributes."""

    builder: ClassVar[str] = toolkit.TENSORRT

    def __init__(
        self, path: Path, header: OnnxHeader, *, threads: int | None, library: str | Path | None
    ) -> None:
        """Load the engine that the cache has of this model.

        Args:
            path: The ONNX file.
            header: The head of that file.
            threads: Not used: the work is the GPU's.
            library: The plugin library: ``auto``, None or ``none``, or a path.

        Raises:
            BackendUnavailableError: There is no builder, no GPU, or no engine of this model.
            NystraError: The engine cannot be loaded.
        """
        usable, reason = self.available()
        if not usable:
            raise BackendUnavailableError(reason)
        model = EngineModel.open(path, "none" if library is None else library)
        self.library = model.library
        self.library_reason = model.library_reason
        self.metadata = dict(header.metadata)
        self._toolkit = toolkit.load(self.builder)
        engine, self._record = self._find(model)
        self._driver = Driver()
        self._driver.activate()
        self._stream = self._driver.stream()
        self._lock = threading.Lock()
        self._loaded = self._load(engine)
        tensors = [self._tensor(name) for name in self._names()]
        mode = self._toolkit.module.TensorIOMode.INPUT
        inputs = {n for n in self._names() if self._loaded.engine.get_tensor_mode(n) == mode}
        self.inputs = tuple(one for one in tensors if one.name in inputs)
        self.outputs = tuple(one for one in tensors if one.name not in inputs)
        self._buffers = {one.name: _Buffer(self._driver) for one in tensors}

    @classmethod
    def available(cls) -> tuple[bool, str]:
        """Return whether the builder and a GPU are here, and a sentence that says so."""
        try:
            toolkit.require(cls.builder)
        except BackendUnavailableError as error:
            return False, str(error)
        device = toolkit.find_device()
        if isinstance(device, str):
            return False, f"{cls.builder} runs on an NVIDIA GPU: {device}"
        return True, f"{cls.builder} on {device.name}"

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Run the model once; calls from several threads wait for each other.

        Raises:
            NystraError: A shape is outside the engine's profile, or the GPU failed.
        """
        with self._lock:
            self._driver.activate()
            context = self._loaded.context
            for name, array in feeds.items():
                self._send(name, np.ascontiguousarray(array))
            if context.infer_shapes():
                raise NystraError(f"the engine needs more than {sorted(feeds)} to know its shapes")
            shapes = {}
            for one in self.outputs:
                shape = shapes[one.name] = tuple(context.get_tensor_shape(one.name))
                count = int(np.prod(shape, dtype=np.int64))
                self._buffers[one.name].reserve(count * np.dtype(one.dtype).itemsize)
                context.set_tensor_address(one.name, self._buffers[one.name].device)
            if not context.execute_async_v3(self._stream):
                raise NystraError(f"{self.builder} could not run the engine: see its log above")
            for one in self.outputs:
                buffer = self._buffers[one.name]
                view = buffer.view(shapes[one.name], one.dtype)
                self._driver.to_host(buffer.pinned, buffer.device, view.nbytes, self._stream)
            self._driver.wait(self._stream)
            return {
                one.name: self._buffers[one.name].view(shapes[one.name], one.dtype).copy()
                for one in self.outputs
            }

    def _send(self, name: str, array: npt.NDArray[Any]) -> None:
        buffer, context = self._buffers[name], self._loaded.context
        buffer.reserve(array.nbytes)
        if not context.set_input_shape(name, array.shape):
            row = self._record.profile.get(name)
            takes = f"from {row[0]} to {row[2]}" if row else "its own shape only"
            raise NystraError(
                f"the engine takes {name!r} {takes}, got {array.shape}: build one for it, "
                "nystra build --minShapes ... --maxShapes ..., or run tiles of its size (-t)"
            )
        buffer.view(array.shape, array.dtype.name)[...] = array
        self._driver.to_device(buffer.device, buffer.pinned, array.nbytes, self._stream)
        context.set_tensor_address(name, buffer.device)

    def _find(self, model: EngineModel) -> tuple[bytes, EngineRecord]:
        device = toolkit.find_device()
        capability = "" if isinstance(device, str) else device.capability
        hashes = sorted(model.hashes().values())
        for path, record in cache.every():
            if (record.backend, record.version) != (self.builder, self._toolkit.version):
                continue
            fits = capability in record.targets or record.device.get("capability") == capability
            if fits and sorted(record.hashes.values()) == hashes:
                return path.read_bytes(), record
        raise BackendUnavailableError(
            f"the cache has no engine of {model.path.name} for {self.builder} "
            f"{self._toolkit.version} on {capability}: nystra build {model.path} --backend "
            f"{self.builder}"
        )

    def _load(self, data: bytes) -> _Loaded:
        module = self._toolkit.module
        logger = module.Logger(module.Logger.WARNING)
        runtime = module.Runtime(logger)
        if self.library is not None:
            runtime.get_plugin_registry().load_library(str(self.library))
        engine = runtime.deserialize_cuda_engine(data)
        context = None if engine is None else engine.create_execution_context()
        if context is None:
            raise NystraError(f"{self.builder} {self._toolkit.version} cannot load the engine")
        return _Loaded(engine, context, [logger, runtime])

    def _names(self) -> list[str]:
        engine = self._loaded.engine
        return [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]

    def _tensor(self, name: str) -> TensorInfo:
        engine = self._loaded.engine
        kind = str(engine.get_tensor_dtype(name)).rpartition(".")[2]
        if kind not in _DTYPES:
            raise NystraError(f"the engine's {name!r} is {kind}; expected {', '.join(_DTYPES)}")
        shape = tuple(None if size < 0 else int(size) for size in engine.get_tensor_shape(name))
        return TensorInfo(name, shape, _DTYPES[kind])
