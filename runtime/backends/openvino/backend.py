"""The backend ``openvino``: OpenVINO, on the CPU with the kernels of libnystra_cpu."""

from __future__ import annotations

import functools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ....core.arrays import Array
from ....core.errors import BackendUnavailableError, NystraError
from ....core.installation import is_installed, not_installed
from ....core.option import Options
from ....plugins.domain import DOMAIN
from ....plugins.library import CPU_LIBRARY, LibraryChoice, choose_library, library_path
from ...compiled import cache
from ...compiled.cache import EngineRecord
from ...model.inlining import inline_model
from ...model.onnx_graph import read_inputs, read_outputs
from ..base import EMULATED, Backend
from .build import CompileOptions, record_of, store
from .integers import merge_scales
from .operators import extensions
from .token_maps import compute_rows, convolve

_SIZES = 4
_SEARCH = (DOMAIN, "NystraPatchMatch")
"""A body that OpenVINO 2026.4 computes wrongly; with fixed sizes it crashed the process."""

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass
class _Network:
    """A compiled network, with its request that no run uses, if any."""

    compiled: Any
    idle: list[Any] = field(default_factory=list)


class OpenvinoBackend(Backend):
    """OpenVINO.

    The network is compiled for each size of its inputs, or loaded if `nystra build` compiled it for
    that size; the last four are kept. It computes in float32, or in bfloat16 if a session requests
    it.

    Attributes:
        device_name: A class attribute: OpenVINO's name of the device. ``CPU`` uses our kernels; on
            other devices the operators are their ONNX bodies.
    """

    devices: ClassVar[tuple[str, ...]] = ("CPU", "GPU", "NPU", "AUTO")
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "fp16", "int8"})
    arithmetic: ClassVar[frozenset[str]] = frozenset({"fp32", "bf16"})
    library_name: ClassVar[str] = CPU_LIBRARY
    bodies: ClassVar[bool] = True
    measures_memory: ClassVar[bool] = True
    compiles: ClassVar[bool] = True
    timed: ClassVar[bool] = True
    build_options: ClassVar[type[Options]] = CompileOptions
    device_name: ClassVar[str] = "CPU"

    def load(self) -> None:
        """Load the file; external data is found next to it.

        With the library ``auto`` libnystra_cpu computes the operators; with ``none`` their ONNX
        bodies replace them while the file is read.

        Raises:
            NystraError: OpenVINO refuses the model, or another library was requested.
            BackendUnavailableError: The model has operators without bodies, or the search of
                patches, and the library is missing.
        """
        import openvino

        header, threads = self.header, self.spec.threads
        choice = self._choose()
        self._core = openvino.Core()
        low = "bf16" if self.spec.precision == "bf16" else None
        kernels = header.has_operators and choice.path is not None
        for extension in extensions(threads, low) if choice.path is not None else ():
            self._core.add_extension(extension)
        self._bodies = header.has_operators and not kernels
        if self._bodies and _SEARCH in header.functions:
            raise BackendUnavailableError(
                f"{self.path} has the operator NystraPatchMatch, whose ONNX body OpenVINO "
                "computes wrongly: it divides integers in float32. Install the operator library "
                f"({choice.reason}), or use `backend` ort-cpu; see docs/engines.md"
            )
        self.settings = _settings(low, threads if self.device_name == "CPU" else None)
        self._low_kernels = low is not None and kernels
        operators = "bodies" if self._bodies else "kernels"
        self._variant = (low or "f32", operators, "scales, rows and convolutions")
        self._compiled: OrderedDict[Shapes, _Network] = OrderedDict()
        self._requests: set[Any] = set()
        self._lock = threading.Lock()
        if cache.is_empty():  # else it may not be needed
            self._model  # noqa: B018
        self.library = choice.path
        self.library_reason = choice.reason
        self.library_missing = choice.missing
        if low is not None and not self._has_bfloat16():
            self.library_reason += f"; {EMULATED}"
            self.emulated = True
        self.inputs = tuple(read_inputs(self.path))
        self.outputs = tuple(read_outputs(self.path))

    @classmethod
    def on(cls, device: str) -> type[OpenvinoBackend]:
        """Return the backend of a device; OpenVINO's other names, such as ``GPU.1``, work too."""
        return _class_of(device)

    @classmethod
    def available(cls) -> tuple[bool, str]:
        """Return whether OpenVINO is installed and has the device, and a sentence about it."""
        if not is_installed("openvino"):
            return False, not_installed("OpenVINO", "openvino")
        if cls.device_name == "CPU":
            return True, "OpenVINO is installed"
        import openvino

        name, devices = cls.device_name, [*openvino.Core().available_devices, "AUTO"]
        if name in devices or name in {entry.partition(".")[0] for entry in devices}:
            return True, f"OpenVINO is installed and has the device {name}"
        return (
            False,
            f"OpenVINO has no device {name!r} on this machine: expected {' or '.join(devices)}",
        )

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model once; safe to call from several threads: every call has its own request.

        One request of each network is kept for the next call, since new memory for the results
        took an eighth of the time of a network of 18 ms.

        Raises:
            NystraError: OpenVINO cannot run the model on these inputs.
        """
        arrays = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        shapes = tuple((name, array.shape) for name, array in arrays.items())
        try:
            network = self._network(shapes)
            try:
                request = network.idle.pop()
            except IndexError:
                request = network.compiled.create_infer_request()
            self._requests.add(request)
            try:
                request.infer(arrays)
            finally:
                self._requests.discard(request)
        except NystraError:
            raise
        except Exception as error:  # OpenVINO's errors have no base of their own
            sizes = ", ".join(f"{name} {shape}" for name, shape in shapes)
            raise NystraError(
                f"OpenVINO cannot run {self.path} on {sizes}: {_line(error)}"
            ) from error
        outputs = {
            tensor.name: np.array(request.get_output_tensor(index).data)
            for index, tensor in enumerate(self.outputs)
        }
        if not network.idle:
            network.idle.append(request)
        return outputs

    def stop(self) -> None:
        """Cancel all runs; OpenVINO ends them after the layer that they compute."""
        for request in list(self._requests):
            request.cancel()

    def infer_and_release(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run as `infer`, and release the network that was compiled for these sizes."""
        outputs = self.infer(feeds)
        with self._lock:
            self._compiled.pop(tuple((name, array.shape) for name, array in feeds.items()), None)
        return outputs

    def record(self, shapes: Mapping[str, tuple[int, ...]]) -> EngineRecord:
        """Return the record of the network of these shapes, as `nystra build` keeps it."""
        return record_of(self.path, shapes, self._core, self.device_name, self._variant)

    def compile(self, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        """Return the network compiled for the shapes of its inputs.

        Raises:
            NystraError: The model file cannot be read.
            RuntimeError: OpenVINO cannot compile it.
        """
        model = self._model.clone()
        model.reshape({name: list(shape) for name, shape in shapes.items()})
        merge_scales(model)
        compute_rows(model)
        convolve(model)
        settings = dict(self.settings)
        if self._low_kernels and not _rounds(model):
            # Else the conversions around our operators, which then convert nothing, are copies.
            settings["SNIPPETS_MODE"] = "DISABLE"
        return self._core.compile_model(model, self.device_name, settings)

    def _choose(self) -> LibraryChoice:
        library, needed = str(self.spec.library), self.header.has_operators
        if library not in ("none", "auto") and not _is_ours(library):
            raise NystraError(
                f"`library` {library} is for onnxruntime: openvino takes its operators from "
                f"lib{CPU_LIBRARY}; use auto or none; see docs/engines.md"
            )
        if needed and self.device_name != "CPU":
            reason = (
                f"the device {self.device_name} runs the operators' bodies: the library has "
                "kernels for the CPU only"
            )
            choice = LibraryChoice(None, reason)
        else:
            requested = "none" if library == "none" else "auto"
            choice = choose_library(requested, needed=needed, name=CPU_LIBRARY)
        if needed and choice.path is None and not self.header.has_bodies:
            raise BackendUnavailableError(
                f"{self.path} has nystra operators without ONNX bodies, so it needs the operator "
                f"library: {choice.reason}. Use `library` auto, or export without `no_functions`; "
                "see docs/engines.md"
            )
        return choice

    @functools.cached_property
    def _model(self) -> Any:
        try:
            content = inline_model(self.path) if self._bodies else str(self.path)
            return self._core.read_model(content)
        except NystraError:
            raise
        except Exception as error:  # as in `run`
            raise NystraError(f"OpenVINO cannot load {self.path}: {_line(error)}") from error

    def _network(self, shapes: Shapes) -> _Network:
        with self._lock:
            if shapes not in self._compiled:
                sizes = dict(shapes)
                loaded = None if cache.is_empty() else self._import(sizes)
                if loaded is None:
                    loaded = self.compile(sizes)
                self._compiled[shapes] = _Network(loaded)
                while len(self._compiled) > _SIZES:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(shapes)
            return self._compiled[shapes]

    def _import(self, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        """Return the network of these shapes from the cache; None, with a warning, if it is bad."""
        blob = store(self.record(shapes))
        if blob is None:
            return None
        try:
            return self._core.import_model(blob, self.device_name, self.settings)
        except RuntimeError as error:
            warnings.warn(
                f"the network in the cache cannot be loaded: {_line(error)}. The model file is "
                "compiled instead; nystra build --rebuild replaces the network",
                stacklevel=2,
            )
            return None

    def _has_bfloat16(self) -> bool:
        return "BF16" in self._core.get_property(self.device_name, "OPTIMIZATION_CAPABILITIES")


@functools.cache
def _class_of(device: str) -> type[OpenvinoBackend]:
    facts = {"device_name": device, "measures_memory": device == "CPU"}
    return type("OpenvinoBackend", (OpenvinoBackend,), facts)


def _settings(low: str | None, threads: int | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": low or "f32",  # else OpenVINO takes the CPU's fastest
        "PERFORMANCE_HINT": "LATENCY",
        # Otherwise all processes compute on the first CPUs, and the threads of our kernels, which
        # inherit the CPU of their caller, all on one.
        "ENABLE_CPU_PINNING": False,
    }
    return settings | ({} if threads is None else {"INFERENCE_NUM_THREADS": threads})


def _rounds(model: Any) -> bool:
    return any(node.get_type_name() == "FakeQuantize" for node in model.get_ops())


def _is_ours(library: str) -> bool:
    try:
        return Path(library).resolve() == Path(library_path(CPU_LIBRARY)).resolve()
    except FileNotFoundError:
        return False


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:400].rstrip(".") if lines else type(error).__name__
