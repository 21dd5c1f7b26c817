"""The backend ``tensorrt``: engines of `nystra build`, on an NVIDIA GPU.

Polygraphy's ``TrtRunner`` runs them. It has no CUDA graphs and no page-locked memory, so that a run
is a plain one, and its copies to and from the device are those of ordinary arrays.
"""

from __future__ import annotations

import contextlib
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
from ..compiled import cache
from ..compiled.cache import Engine, EngineRecord
from ..compiled.model import LIBRARY, EngineModel
from ..engines.build import BuildOptions
from ..engines.builder import TENSORRT, Builder
from ..machine import gpu
from ..model.model_facts import TensorInfo
from .base import Backend

_OUT_OF_MEMORY = "CUDA Error: 2."


class TensorrtBackend(Backend):
    """TensorRT on the first GPU.

    If the cache has engines of a model for several shapes, a run uses the newest that accepts its
    shapes; one is loaded at a time.
    """

    device: ClassVar[str] = "cuda"
    engine: ClassVar[Builder] = TENSORRT
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
        self._engines = _find_engines(model, self.engine)
        if model.library is not None:
            self.engine.load_plugins(model.library)
        with _wheels_on_the_path():
            import_module("polygraphy.cuda").wrapper()
        self._lock = threading.Lock()
        self._loaded: Engine | None = None
        self._runners: list[Any] = []
        weakref.finalize(self, _close, self._runners)
        with self._open_runner(self._engines[0]) as runner:
            self.inputs, self.outputs = (
                self._tensors(runner, "INPUT"),
                self._tensors(runner, "OUTPUT"),
            )

    @classmethod
    def available(cls) -> tuple[bool, str]:
        """Return whether the builder and a GPU are here, and a sentence with the reason."""
        try:
            cls.engine.require()
        except BackendUnavailableError as error:
            return False, str(error)
        device = gpu.find_device()
        if isinstance(device, str):
            return False, f"{cls.engine.name} runs on an NVIDIA GPU: {device}"
        return True, f"{cls.engine.name} on {device.name}"

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model once; calls from several threads wait for each other.

        Raises:
            NystraError: No engine takes these shapes, or the GPU failed.
        """
        with self._lock, self._open_runner(_engine_for(self._engines, feeds)) as runner:
            outputs = runner.infer(feeds, check_inputs=False)
            # The next run overwrites them.
            return {output.name: outputs[output.name].copy() for output in self.outputs}

    def time_on_device(self, feeds: Mapping[str, Array]) -> float | None:
        """Return the seconds of a synchronized run whose inputs and outputs are on the device."""
        engine = _engine_for(self._engines, feeds)
        with self._lock, self._open_runner(engine) as runner, contextlib.ExitStack() as stack:
            kind = import_module("polygraphy.cuda").DeviceArray
            arrays = {}
            for name, array in feeds.items():
                memory = stack.enter_context(kind(array.shape, array.dtype))
                arrays[name] = memory.copy_from(np.ascontiguousarray(array))
            runner.infer(arrays, check_inputs=False, copy_outputs_to_host=False)
            return float(runner.last_inference_time())

    @contextlib.contextmanager
    def _open_runner(self, engine: Engine) -> Iterator[Any]:
        """Yield an engine's runner, which takes the place of the former one; after an error too."""
        loaded, self._loaded = self._loaded, None
        try:
            if engine != loaded:
                _close(self._runners)
                polygraphy = self.engine.polygraphy
                content = polygraphy.engine_from_bytes(engine.path.read_bytes())
                self._runners.append(polygraphy.TrtRunner(content))
                self._runners[0].activate()
            yield self._runners[0]
        except NystraError:
            raise
        except Exception as error:  # Polygraphy's, and the bindings' of many types
            if _OUT_OF_MEMORY in str(error):
                raise NystraError(
                    "not enough GPU memory: use smaller tiles (`tile`); see docs/running.md"
                ) from error
            raise NystraError(
                f"{self.engine.name} {self.engine.version} cannot load or run the engine (see its "
                f"log above): {error}. If it does not load, build it again with nystra build "
                "--rebuild; see docs/gpu.md"
            ) from error
        self._loaded = engine

    def _tensors(self, runner: Any, mode: str) -> tuple[TensorInfo, ...]:
        """Return the inputs or outputs of the engine."""
        modes = self.engine.module.TensorIOMode
        read = import_module("polygraphy.backend.trt.util").get_metadata_from_engine
        tensors = []
        for name, (dtype, shape) in read(runner.engine, runner.context, modes[mode]).items():
            if str(dtype) == "bfloat16":
                raise NystraError(f"the engine's {name!r} is bfloat16, which numpy does not have")
            sizes = tuple(None if size < 0 else size for size in shape)
            tensors.append(TensorInfo(name, sizes, str(dtype)))
        return tuple(tensors)


def _find_engines(model: EngineModel, builder: Builder) -> list[Engine]:
    """Return the engines of a model from this builder for this machine's GPU, newest first.

    Raises:
        BackendUnavailableError: There is none.
    """
    device = gpu.find_device()
    built = builder.name, builder.version, model.hashes()
    engines = [
        engine
        for engine in cache.every()
        if (engine.record.backend, engine.record.version, engine.record.hashes) == built
        and _fits(engine.record, builder, device)
    ]
    if engines:
        return engines
    target = device if isinstance(device, str) else f"{device.name} ({device.capability})"
    raise BackendUnavailableError(
        f"the cache has no engine for {model.path.name} for {builder.name} {builder.version} on "
        f"{target}: nystra build {model.path} --backend {builder.name}; see docs/gpu.md"
    )


def _fits(record: EngineRecord, builder: Builder, device: gpu.Device | str) -> bool:
    """Whether an engine is for this GPU: TensorRT's for its model, TensorRT-RTX's for its kind."""
    if isinstance(device, str):
        return False
    name, capability = record.device.get("name"), record.device.get("capability")
    if builder.rtx:
        return device.capability in (*record.targets, capability)
    return (name, capability) == (device.name, device.capability)


def _engine_for(engines: Sequence[Engine], feeds: Mapping[str, Array]) -> Engine:
    """Return the first engine whose profile accepts the shapes of these inputs.

    Raises:
        NystraError: No engine does.
    """
    ranges = []
    for engine in engines:
        profile = engine.record.profile
        if all(_is_within(feeds[name].shape, profile[name]) for name in profile):
            return engine
        ranges += [f"{name!r} from {row[0]} to {row[2]}" for name, row in profile.items()]
    shapes = ", ".join(f"{name!r} {array.shape}" for name, array in feeds.items())
    raise NystraError(
        f"the engines in the cache accept {'; '.join(ranges)}, got {shapes}: build one for it, "
        "nystra build --minShapes ... --maxShapes ..., or run tiles of a size that they accept "
        "(`tile`); see docs/gpu.md"
    )


def _is_within(shape: tuple[int, ...], row: Sequence[tuple[int, ...]]) -> bool:
    minimum, _, maximum = row
    return len(shape) == len(minimum) and all(
        low <= size <= high for low, size, high in zip(minimum, shape, maximum, strict=True)
    )


def _close(runners: list[Any]) -> None:
    """Release an engine and its memory; errors are ignored, since nothing is left to save."""
    while runners:
        runner = runners.pop()
        # Polygraphy's deactivate() waits for nothing and forgets the outputs.
        buffers = runner.output_allocator.buffers.values()
        releases = [runner.stream.synchronize, *(buffer.free for buffer in buffers)]
        for release in (*releases, runner.deactivate):
            with contextlib.suppress(Exception):
                release()


@contextlib.contextmanager
def _wheels_on_the_path() -> Iterator[None]:
    """Make Polygraphy, which finds the CUDA runtime of CUDA 12's wheels, find that of CUDA 13's."""
    spec, variable = find("nvidia"), "LD_LIBRARY_PATH"
    places = [] if spec is None else spec.submodule_search_locations or []
    folders = [str(lib) for place in places for lib in sorted(Path(place).glob("cu*/lib"))]
    before = os.environ.get(variable)
    os.environ[variable] = os.pathsep.join([*filter(None, [before]), *folders])
    try:
        yield
    finally:
        os.environ.pop(variable)
        os.environ.update({} if before is None else {variable: before})
