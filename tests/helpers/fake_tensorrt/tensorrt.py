"""A module ``tensorrt`` and a CUDA runtime in plain memory, on which Polygraphy's runner works.

Its engines have one input and one output and enlarge an image by 2; the loaded engine's bytes are
the largest height that it takes. The clock takes a second for a copy and a millisecond for a run.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from typing import Any

import numpy as np

__version__ = "11.2"
DataType = enum.Enum("DataType", "FLOAT HALF INT8 UINT8 INT32 INT64 BOOL BF16")
float32, float16, bfloat16 = DataType.FLOAT, DataType.HALF, DataType.BF16
int8, uint8, int32, int64 = DataType.INT8, DataType.UINT8, DataType.INT32, DataType.INT64
bool = DataType.BOOL
TensorIOMode = enum.Enum("TensorIOMode", "INPUT OUTPUT")
TensorFormat = enum.Enum("TensorFormat", "LINEAR HWC CHW16")


class CudaRuntime:
    """libcudart in plain memory.

    Attributes:
        memory: Address -> block.
        calls: Names of the functions that were called.
        fails: Name of a function -> the error that it returns.
    """

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}
        self.clock = 0.0

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name not in self.fails:
                getattr(self, f"_{name}")(*arguments)
            return self.fails.get(name, 0)

        return call

    def _cudaMalloc(self, pointer: Any, size: ctypes.c_size_t) -> None:  # noqa: N802
        block = ctypes.create_string_buffer(size.value)
        pointer._obj.value = ctypes.addressof(block)
        self.memory[pointer._obj.value] = block

    def _cudaFree(self, pointer: ctypes.c_void_p) -> None:  # noqa: N802
        if pointer.value:
            del self.memory[pointer.value]

    def _cudaMemcpyAsync(self, target: Any, source: Any, size: Any, *_: Any) -> None:  # noqa: N802
        ctypes.memmove(target, source, size.value)
        self.clock += 1.0

    def _cudaMemcpy(self, target: Any, source: Any, size: Any, _: Any) -> None:  # noqa: N802
        self._cudaMemcpyAsync(target, source, size)

    def _cudaStreamCreate(self, pointer: Any) -> None:  # noqa: N802
        pointer._obj.value = 7

    def _cudaStreamSynchronize(self, stream: Any) -> None:  # noqa: N802
        assert stream.value == 7

    def _cudaStreamDestroy(self, stream: Any) -> None:  # noqa: N802
        assert stream.value == 7


cuda = CudaRuntime()


class ILogger:
    """The base of loggers."""


class Logger:
    """Severities."""

    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class IOutputAllocator:
    """The base of allocators."""


class IExecutionContext:
    """Doubles the image's height and width by repeating pixels."""

    def __init__(self, engine: ICudaEngine) -> None:
        self.engine = engine
        self.active_optimization_profile = 0
        self.shape: tuple[int, ...] = (-1, 3, -1, -1)
        self.addresses = {"input": 0, "output": 0}
        self.allocator: Any = None

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shape

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> Any:
        self.shape = tuple(shape)
        return shape[2] <= self.engine.most

    def get_tensor_address(self, name: str) -> int:
        return self.addresses[name]

    def set_tensor_address(self, name: str, address: int) -> Any:
        self.addresses[name] = address
        return True

    def set_output_allocator(self, name: str, allocator: Any) -> Any:
        self.allocator = allocator
        return True

    def execute_async_v3(self, stream: int) -> Any:
        assert stream == 7
        cuda.calls.append("enqueue")
        batch, channels, height, width = self.shape
        size = int(np.prod(self.shape))
        memory = (ctypes.c_char * (4 * size)).from_address(self.addresses["input"])
        image = np.frombuffer(memory, np.float32).reshape(self.shape)
        large = image.repeat(2, 2).repeat(2, 3)
        target = self.allocator.reallocate_output_async("output", 0, large.nbytes, 256, stream)
        self.allocator.notify_shape("output", (batch, channels, 2 * height, 2 * width))
        ctypes.memmove(target, large.tobytes(), large.nbytes)
        cuda.clock += 1e-3
        return "enqueue" not in cuda.fails


class ICudaEngine:
    """An engine with one open input and one output."""

    num_io_tensors = 2

    def __init__(self, most: int) -> None:
        self.most = most

    def get_tensor_name(self, index: int) -> str:
        return ("input", "output")[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode[name.upper()]

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType.FLOAT

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (-1, 3, -1, -1)

    def get_tensor_format(self, name: str, profile: int) -> TensorFormat:
        return TensorFormat.LINEAR

    def is_shape_inference_io(self, name: str) -> Any:
        return False

    def create_execution_context(self) -> IExecutionContext:
        return IExecutionContext(self)


class Runtime:
    """Loads engines."""

    def __init__(self, logger: Any) -> None:
        pass

    def deserialize_cuda_engine(self, data: bytes) -> ICudaEngine | None:
        cuda.calls.append("load")
        return ICudaEngine(int(data)) if data.isdigit() else None


def init_libnvinfer_plugins(logger: Any, namespace: str) -> Any:
    """TensorRT's own plugins, of which there are none."""
    return True
