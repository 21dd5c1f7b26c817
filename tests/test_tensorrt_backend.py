"""The TensorRT backend's own steps, with a driver and an engine of the test: no GPU is involved.

That a real engine runs is not shown here; it is listed in docs/gpu.md among what only a GPU shows.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nystra.plugins.errors import BackendUnavailableError, NystraError
from nystra.runtime import Session
from nystra.runtime.backends import _cuda
from nystra.runtime.backends import tensorrt as backend
from nystra.runtime.engines import cache, toolkit
from nystra.runtime.engines.model import EngineModel
from nystra.runtime.engines.record import EngineRecord
from runtime_models import save_upscaler

DEVICE = toolkit.Device("Test GPU", "sm89", 13)


class FakeCuda:
    """libcuda with plain memory for the device's; it notes what was done."""

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            handler = {
                "cuMemAlloc_v2": self._allocate,
                "cuMemHostAlloc": self._allocate,
                "cuMemFree_v2": self._free,
                "cuMemFreeHost": self._free,
                "cuMemcpyHtoDAsync_v2": self._copy,
                "cuMemcpyDtoHAsync_v2": self._copy,
            }.get(name)
            if handler is not None:
                handler(*arguments)
            return 0

        return call

    def _allocate(self, pointer: Any, size: ctypes.c_size_t, *_: Any) -> None:
        block = ctypes.create_string_buffer(size.value)
        address = ctypes.addressof(block)
        self.memory[address] = block
        pointer._obj.value = address

    def _free(self, pointer: ctypes.c_void_p) -> None:
        del self.memory[pointer.value or 0]

    def _copy(self, target: Any, source: Any, size: Any, _stream: Any) -> None:
        ctypes.memmove(target, source, size.value)


class FakeContext:
    """Doubles the picture's height and width by repeating pixels; takes heights to 16."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shapes[name] = tuple(shape)
        return shape[2] <= 16

    def infer_shapes(self) -> list[str]:
        return []

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        b, c, h, w = self.shapes["input"]
        return (b, c, 2 * h, 2 * w) if name == "output" else (b, c, h, w)

    def set_tensor_address(self, name: str, address: int) -> None:
        self.addresses[name] = address

    def execute_async_v3(self, _stream: int) -> bool:
        shape = self.shapes["input"]
        size = int(np.prod(shape))
        image = np.frombuffer(
            (ctypes.c_char * (4 * size)).from_address(self.addresses["input"]), np.float32
        ).reshape(shape)
        large = image.repeat(2, 2).repeat(2, 3)
        ctypes.memmove(self.addresses["output"], large.tobytes(), large.nbytes)
        return True


class FakeEngine:
    """An engine with one open input and one output."""

    num_io_tensors = 2

    def get_tensor_name(self, index: int) -> str:
        return ("input", "output")[index]

    def get_tensor_mode(self, name: str) -> str:
        return name

    def get_tensor_dtype(self, name: str) -> str:
        return "DataType.FLOAT"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (-1, 3, -1, -1)

    def create_execution_context(self) -> FakeContext:
        return FakeContext()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCuda:
    """Everything that a GPU machine has, faked."""
    library = FakeCuda()

    class Logger:
        WARNING = 1

        def __init__(self, _severity: int) -> None:
            pass

    runtime = SimpleNamespace(deserialize_cuda_engine=lambda data: FakeEngine() if data else None)
    module = SimpleNamespace(
        Logger=Logger,
        Runtime=lambda _logger: runtime,
        TensorIOMode=SimpleNamespace(INPUT="input"),
    )
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(toolkit, "installed", lambda _name: True)
    monkeypatch.setattr(toolkit, "find_device", lambda: DEVICE)
    monkeypatch.setattr(toolkit, "load", lambda name: toolkit.Toolkit(name, module, "11.2"))
    monkeypatch.setattr(backend, "Driver", lambda: _cuda.Driver(lambda _name: library))
    return library


def session(tmp_path: Path, **changes: Any) -> Session:
    """A session on an engine that is in the cache."""
    model = EngineModel.open(save_upscaler(tmp_path / "m.onnx"))
    profile = {"input": ((1, 3, 1, 1), (1, 3, 8, 8), (1, 3, 16, 16))}
    fields = {"backend": "tensorrt", "version": "11.2", "device": {"capability": "sm89"}, **changes}
    record = EngineRecord(hashes=model.hashes(), profile=profile, **fields)
    (tmp_path / "engine").write_bytes(b"engine")
    cache.store(record, tmp_path / "engine")
    return Session(model.path, backend=fields["backend"])


def test_runs_at_growing_and_shrinking_sizes(driver: FakeCuda, tmp_path: Path) -> None:
    one = session(tmp_path)
    assert one.inputs[0].shape == (None, 3, None, None)
    for height, width in ((4, 6), (16, 9), (1, 1), (16, 9)):
        image = np.random.default_rng(0).random((1, 3, height, width), dtype=np.float32)
        np.testing.assert_array_equal(one(image), image.repeat(2, 2).repeat(2, 3))
    assert len(driver.memory) == 4  # two tensors, on the device and page-locked
    assert driver.calls.count("cuMemAlloc_v2") == 4  # two sizes grew, none shrank


def test_a_shape_outside_the_profile(driver: FakeCuda, tmp_path: Path) -> None:
    one = session(tmp_path)
    with pytest.raises(NystraError, match=r"takes 'input' from \(1, 3, 1, 1\) to \(1, 3, 16, 16\)"):
        one(np.zeros((1, 3, 17, 4), np.float32))


def test_failures_of_the_driver_are_named(driver: FakeCuda, tmp_path: Path) -> None:
    one = session(tmp_path)
    driver.fails["cuStreamSynchronize"] = 700
    with pytest.raises(NystraError, match=r"failed in cuStreamSynchronize: unknown \(700\)"):
        one(np.zeros((1, 3, 4, 4), np.float32))
    driver.fails = {"cuMemAlloc_v2": 2}
    with pytest.raises(NystraError, match="memory does not suffice"):
        one(np.zeros((1, 3, 16, 16), np.float32))


OTHER_ENGINES: list[dict[str, Any]] = [
    {"version": "11.1"},
    {"device": {"capability": "sm90"}},
    {"device": {}, "targets": ["sm120"]},
]


@pytest.mark.parametrize("changes", OTHER_ENGINES)
def test_engines_of_others_are_passed_over(
    changes: dict[str, Any], driver: FakeCuda, tmp_path: Path
) -> None:
    with pytest.raises(BackendUnavailableError, match=r"no engine of m.onnx .* nystra build"):
        session(tmp_path, **changes)


def test_an_engine_built_ahead_of_time(driver: FakeCuda, tmp_path: Path) -> None:
    one = session(tmp_path, backend="tensorrt-rtx", device={}, targets=["sm86", "sm89"])
    assert one.backend == "tensorrt-rtx"
    image = np.ones((1, 3, 2, 2), np.float32)
    np.testing.assert_array_equal(one(image), np.ones((1, 3, 4, 4), np.float32))


def test_without_a_driver_or_a_device() -> None:
    def absent(_name: str) -> Any:
        raise OSError("libcuda.so.1: no such file")

    with pytest.raises(BackendUnavailableError, match="no NVIDIA driver"):
        _cuda.Driver(absent)
    library = FakeCuda()
    library.fails["cuInit"] = 100
    with pytest.raises(BackendUnavailableError, match="finds no GPU"):
        _cuda.Driver(lambda _name: library)
