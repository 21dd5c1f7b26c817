"""The backend ``tensorrt``: engines that `nystra build` made, on an NVIDIA GPU.

Polygraphy's ``TrtRunner`` runs them. It has no CUDA graphs and no page-locked memory, so that a run
is a plain one, and its copies to and from the device are those of ordinary arrays.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError, NystraError
from ...core.installation import find
from ...core.option import Options
from ..engines import cache, toolkit
from ..engines.build import BuildOptions
from ..engines.cache import EngineRecord
from ..engines.model import LIBRARY, EngineModel
from ..machine import gpu
from ..model.model_facts import TensorInfo
from .base import Backend

Shapes = Mapping[str, tuple[int, ...]]
CachedEngine = tuple[Path, EngineRecord]


def engines_for(model: EngineModel, builder: toolkit.Toolkit) -> list[CachedEngine]:
    """Return the engines of a model from this builder for this machine's GPU, newest first.

    Raises:
        BackendUnavailableError: There is none; the message lists engines for other devices.
    """
    device = gpu.find_device()
    engines = list(_engines_of(model, builder))
    fitting = [engine for engine in engines if _fits(engine[1], device)]
    if fitting:
        return fitting
    this_device = device if isinstance(device, str) else f"{device.name} ({device.capability})"
    other_devices = sorted({_place(record) for _, record in engines})
    raise BackendUnavailableError(
        f"the cache has no engine for {model.path.name} for {builder.name} {builder.version} on "
        f"{this_device}{f', only for {chr(44).join(other_devices)}' if other_devices else ''}: "
        f"nystra build {model.path} --backend {builder.name}; see docs/gpu.md"
    )


def engine_taking(engines: Sequence[CachedEngine], shapes: Shapes) -> CachedEngine:
    """Return the first engine whose profile accepts these input shapes.

    Raises:
        NystraError: No engine does.
    """
    for engine in engines:
        if not _refused(engine[1], shapes):
            return engine
    refusals = [_refused(record, shapes) for _, record in engines]
    name = refusals[0]
    ranges = ", ".join(
        f"from {record.profile[name][0]} to {record.profile[name][2]}"
        for (_, record), refused in zip(engines, refusals, strict=True)
        if refused == name
    )
    raise NystraError(
        f"the engines in the cache accept {name!r} {ranges}; got {shapes[name]}: build one for "
        "it, nystra build --minShapes ... --maxShapes ..., or run tiles of a size that they "
        "accept (`tile`); see docs/gpu.md"
    )


def _engines_of(model: EngineModel, builder: toolkit.Toolkit) -> Iterator[CachedEngine]:
    hashes = model.hashes()
    for path, record in cache.every():
        if (record.backend, record.version) != (builder.name, builder.version):
            continue
        if not toolkit.built_as_now(record.flags):
            continue
        if record.hashes == hashes:
            yield path, record


def _fits(record: EngineRecord, device: gpu.Device | str) -> bool:
    """Whether an engine is for this GPU: TensorRT's for its model, TensorRT-RTX's for its kind."""
    if isinstance(device, str):
        return False
    if toolkit.BUILDERS[record.backend].targets:
        return device.capability in (*record.targets, record.device.get("capability"))
    built = (record.device.get("name"), record.device.get("capability"))
    return built == (device.name, device.capability)


def _place(record: EngineRecord) -> str:
    name, capability = record.device.get("name"), record.device.get("capability")
    return "/".join(record.targets) or f"{name} ({capability})"


def _refused(record: EngineRecord, shapes: Shapes) -> str:
    """Return the first input whose shape the profile does not accept; empty if it accepts all."""
    for name, shape in shapes.items():
        least, _, most = record.profile.get(name, (shape, shape, shape))
        inside = len(shape) == len(least) and all(
            low <= size <= high for low, size, high in zip(least, shape, most, strict=True)
        )
        if not inside:
            return name
    return ""


_OUT_OF_MEMORY = "CUDA Error: 2."


class TensorrtBackend(Backend):
    """TensorRT on the first GPU.

    If the cache has engines of a model for several shapes, a run uses the newest that accepts its
    shapes; one is loaded at a time.
    """

    device: ClassVar[str] = "cuda"
    engine: ClassVar[str] = toolkit.TENSORRT
    build_options: ClassVar[type[Options]] = BuildOptions
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
        model = EngineModel.open(self.path, self.spec.library)
        self.library, self.library_reason = model.library, model.library_reason
        self._toolkit = toolkit.load(self.engine)
        self._engines = engines_for(model, self._toolkit)
        if model.library is not None:
            self._toolkit.load_plugins(model.library)
        self._lock = threading.Lock()
        self._loaded: CachedEngine | None = None
        self._runner = _Runner(self._toolkit)
        weakref.finalize(self, self._runner.close)
        with self._loading(self._engines[0]):
            self.inputs, self.outputs = self._runner.tensors()

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
        with self._lock, self._using(feeds):
            outputs = self._runner.run(feeds)  # which the next run overwrites
            return {output.name: outputs[output.name].copy() for output in self.outputs}

    def time_on_device(self, feeds: Mapping[str, Array]) -> float | None:
        """Run as `infer`; return the seconds between events around the engine's work."""
        with self._lock, self._using(feeds):
            self._runner.run(feeds)
            return self._runner.seconds()  # Polygraphy's own time includes the copies

    @contextlib.contextmanager
    def _using(self, feeds: Mapping[str, Array]) -> Iterator[None]:
        """Load the engine of these inputs; make errors ours, after which it is loaded again."""
        taking = engine_taking(self._engines, {name: a.shape for name, a in feeds.items()})
        with self._loading(taking):
            yield

    @contextlib.contextmanager
    def _loading(self, engine: CachedEngine) -> Iterator[None]:
        loaded, self._loaded = self._loaded, None
        try:
            if engine != loaded:
                self._runner.open(cache.read(*engine))
            yield
            self._loaded = engine
        except NystraError:
            raise
        except Exception as error:  # Polygraphy's, and the bindings' of many types
            if _OUT_OF_MEMORY in str(error):
                raise NystraError(
                    "not enough GPU memory: use smaller tiles (`tile`); see docs/running.md"
                ) from error
            raise NystraError(
                f"{self.engine} {self._toolkit.version} cannot load or run the engine (see its "
                f"log above): {error}. If it does not load, build it again with nystra build "
                "--rebuild; see docs/gpu.md"
            ) from error


class _Runner:
    """Polygraphy's runner of one engine at a time."""

    def __init__(self, found: toolkit.Toolkit) -> None:
        self._toolkit = found
        self._runner: Any = None
        with _wheels_on_the_path():
            self._cuda = import_module("polygraphy.cuda").wrapper()

    def open(self, engine: bytes) -> None:
        """Load an engine in place of the former one."""
        self.close()
        polygraphy = self._toolkit.polygraphy
        runner = polygraphy.TrtRunner(polygraphy.engine_from_bytes(engine))
        runner.activate()
        self._runner = runner

    def run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the outputs, which the next run overwrites."""
        arrays = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        outputs: Mapping[str, Array] = self._runner.infer(arrays, check_inputs=False)
        return outputs

    def seconds(self) -> float:
        """Run again at the shapes and on the buffers of the last run; return the device's time."""
        library, check = self._cuda.handle, self._cuda.check
        events, stream = (ctypes.c_void_p(), ctypes.c_void_p()), self._runner.stream
        milliseconds = ctypes.c_float()
        for event in events:
            check(library.cudaEventCreate(ctypes.byref(event)))
        try:
            check(library.cudaEventRecord(events[0], ctypes.c_void_p(stream.ptr)))
            if not self._runner.context.execute_async_v3(stream.ptr):
                raise NystraError(f"{self._toolkit.name} could not run the engine: see its log")
            check(library.cudaEventRecord(events[1], ctypes.c_void_p(stream.ptr)))
            stream.synchronize()
            check(library.cudaEventElapsedTime(ctypes.byref(milliseconds), *events))
        finally:
            for event in events:
                library.cudaEventDestroy(event)
        return milliseconds.value / 1e3

    def tensors(self) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
        """Return inputs and outputs."""
        engine = self._runner.engine
        inputs: list[TensorInfo] = []
        outputs: list[TensorInfo] = []
        for index in range(engine.num_io_tensors):
            name = engine.get_tensor_name(index)
            dtype = toolkit.dtype_name(engine.get_tensor_dtype(name))
            if dtype == "bfloat16":
                raise NystraError(f"the engine's {name!r} is bfloat16, which numpy does not have")
            shape = tuple(None if size < 0 else size for size in engine.get_tensor_shape(name))
            is_input = engine.get_tensor_mode(name) == self._toolkit.module.TensorIOMode.INPUT
            (inputs if is_input else outputs).append(TensorInfo(name, shape, dtype))
        return tuple(inputs), tuple(outputs)

    def close(self) -> None:
        """Release the engine and its memory; errors are ignored, since nothing is left to save."""
        runner, self._runner = self._runner, None
        if runner is not None:
            with contextlib.suppress(Exception):
                runner.stream.synchronize()
            for buffer in runner.output_allocator.buffers.values():  # deactivate() forgets these
                with contextlib.suppress(Exception):
                    buffer.free()
            with contextlib.suppress(Exception):
                runner.deactivate()


@contextlib.contextmanager
def _wheels_on_the_path() -> Iterator[None]:
    """Make Polygraphy, which finds the CUDA runtime of CUDA 12's wheels, find that of CUDA 13's."""
    spec, before = find("nvidia"), os.environ.get("LD_LIBRARY_PATH")
    places = [] if spec is None else spec.submodule_search_locations or []
    folders = [str(lib) for place in places for lib in sorted(Path(place).glob("cu*/lib"))]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join([*filter(None, [before]), *folders])
    try:
        yield
    finally:
        if before is None:
            del os.environ["LD_LIBRARY_PATH"]
        else:
            os.environ["LD_LIBRARY_PATH"] = before
