"""One loaded model file: named arrays in, named arrays out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import NystraError
from ..core.ports.port import SIDES
from .backends import open_backend
from .backends.base import Backend
from .model.model_facts import ModelFacts, parse_facts
from .session_spec import FASTEST, SessionSpec


class Session:
    """A model file, ready to run; safe to use from several threads at once.

    Attributes:
        spec: The settings it was opened with, including the chosen backend: `Session.open` opens
            another session like it.
        path: The model file.
        backend: Name of the backend that runs it, such as ``ort-cpu`` or ``openvino:GPU``.
        kind: The class of that backend with its properties, see `Backend`.
        precision: The requested arithmetic, or None.
        inputs: The graph's inputs (`TensorInfo`).
        outputs: The graph's outputs; the first one is the image.
        metadata: The file's metadata as text: the ``metadata_props`` of an ONNX file.
        facts: The parsed metadata (`ModelFacts`).
        library: Path of the operator library in use, or None.
        library_reason: One sentence that explains the choice of the library.
        library_missing: The operator library that ``auto`` uses is not installed.
        library_refused: It is installed but does not support the model, which runs on the
            operators' bodies.
        operators: How the operators of nystra are computed: ``kernels`` of that library, their
            ``bodies``, or "" if there are none.
        emulated: The requested precision is slow on this machine.
        assignment: Which execution provider computes how many nodes of which operators, if the
            backend is ``ort:NAME`` and onnxruntime is 1.24 or later, otherwise None.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        backend: str = "auto",
        threads: int | None = None,
        library: str | Path | None = "auto",
        precision: str | None = None,
        device: str | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
        ep_library: str | Path | None = None,
        range: Any = None,
    ) -> None:
        """Load a model file.

        Args:
            path: An ONNX file, by nystra-export or by another program, or another kind of file that
                the backend opens.
            backend: ``ort-cpu``, ``openvino``, ..., or ``auto`` for the first available one.
                ``openvino:GPU`` names a device, too, and ``ort:WebGpuExecutionProvider`` an
                execution provider of onnxruntime.
            threads: Number of threads, or None for the backend's own choice.
            library: The operator library: ``auto`` uses nystra's library if it is installed and
                supports the model; None or ``none`` runs the operators' ONNX bodies; a path uses
                that library.
            precision: The precision of the computation: ``bf16`` or ``fp32`` with ``openvino``.
                None: that of the file, the only choice of other backends.
            device: One of the backend's devices, or None for its default.
            options: Options of the backend, by name.
            ep_library: The plug-in library of onnxruntime with the provider of ``ort:NAME``.
            range: The values that the model takes and returns, if the file does not state them: a
                text such as ``0..255`` or ``0..1,0..255``, or two pairs of numbers.

        Raises:
            NystraError: The file is missing, of another kind or truncated, or an argument is wrong.
            BackendUnavailableError: The backend, or a library the model needs, is missing.
        """
        plugin = None if ep_library is None else Path(ep_library)
        spec = SessionSpec(
            Path(path), backend, threads, library, precision, device, options, plugin, range
        )
        if spec.backend == FASTEST:
            raise NystraError(
                "fastest is not a backend: call nystra.runtime.choose_fastest, which times a "
                "SessionSpec and returns the fastest one"
            )
        self._backend = loaded = open_backend(spec)
        self.kind: type[Backend] = type(loaded)
        self.spec = loaded.spec
        self.path = loaded.path
        self.backend = self.spec.backend_name
        self.precision = precision
        self.inputs = loaded.inputs
        self.outputs = loaded.outputs
        self.metadata = loaded.metadata
        self.library = loaded.library
        self.library_reason = loaded.library_reason
        self.library_missing = loaded.library_missing
        self.library_refused = loaded.library_refused
        self.operators = loaded.operators
        self.emulated = loaded.emulated
        self.assignment = loaded.assignment
        self.facts: ModelFacts = parse_facts(
            self.metadata, self.inputs, self.outputs, self.spec.range
        )

    @classmethod
    def open(cls, spec: SessionSpec) -> Session:
        """Load the model file of a spec; raises what the constructor raises."""
        others = {item.name: getattr(spec, item.name) for item in fields(spec)[1:]}
        return cls(spec.model, **others)

    def run(self, feeds: Mapping[str, Array], *, release: bool = False) -> dict[str, Array]:
        """Run the model once.

        Args:
            feeds: Input name -> array. Floating point arrays are converted to the input's floating
                point type; nothing else is converted. Arrays are not modified.
            release: Return the memory of the run to the system, if the backend supports it; the
                next run allocates it again.

        Returns:
            Output name -> array, in the order of `outputs`.

        Raises:
            NystraError: A name, type or shape is wrong, or the backend fails.
        """
        self._refuse_small(feeds)
        return self._backend.run(feeds, release=release)

    def _refuse_small(self, feeds: Mapping[str, Array]) -> None:
        """Raise if a side is below what the file states: below it may compute something else."""
        minimum = self.facts.size_minimum
        if minimum == 1 or self.facts.sides is not None:
            return
        for port in self.facts.inputs:
            shape = np.shape(feeds.get(port.name, ()))
            lengths = zip(port.axes, shape, strict=False) if not port.own_size else ()
            if any(axis in SIDES and length < minimum for axis, length in lengths):
                raise NystraError(
                    f"the input {port.name!r} got the shape {shape}, expected sides of at least "
                    f"{minimum} pixels"
                )

    def device_seconds(self, feeds: Mapping[str, Array]) -> float | None:
        """Run the model once and return the seconds that the device computed.

        Copies between the device and this machine are left out. `tensorrt`, `tensorrt-rtx` and
        PyTorch take the time between two CUDA events on their stream; `ort-cuda` and
        `ort-tensorrt` that of a synchronized run whose inputs and outputs stay on the device.

        Returns:
            None where the backend computes on the CPU or cannot tell.

        Raises:
            NystraError: As `run`.
        """
        return self._backend.device_seconds(feeds)

    def __call__(self, image: Array, **others: Array) -> Array:
        """Run the model on one image and return its first output.

        Args:
            image: For the input whose role is ``image``; usually (B, C, H, W), RGB, in 0..1.
            **others: The model's other inputs by name.

        Raises:
            NystraError: As `run`; also when no input of the model is an image.
        """
        port = self.facts.image
        if port is None:
            names = [f"{tensor.name} {tensor.shape}" for tensor in self.inputs]
            raise NystraError(
                f"{self.path} does not have exactly one image input (4-D, floating point): its "
                f"inputs are {names}. Use run() with names."
            )
        return self.run({port.name: image, **others})[self.outputs[0].name]
