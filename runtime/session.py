"""One loaded model file: named arrays in, named arrays out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import NystraError
from ..core.metadata import ModelMetadata
from .backends import backend_class, require_arithmetic, require_precision
from .model.model_facts import ModelFacts, parse_facts
from .model.model_ports import TensorInfo
from .model.onnx_header import read_onnx_header
from .session_spec import FASTEST, SessionSpec

Array = npt.NDArray[Any]


class Session:
    """A model file, ready to run; safe to use from several threads at once.

    Attributes:
        spec: What it was opened from, the backend being the one that runs it: `SessionSpec.open`
            opens another like it.
        path: The model file.
        backend: Name of the backend that runs it, such as ``ort-cpu`` or ``openvino:GPU``.
        precision: The arithmetic that was asked for, or None.
        inputs: The graph's inputs (`TensorInfo`).
        outputs: The graph's outputs; the first one is the picture.
        metadata: The file's ``metadata_props``, as text.
        facts: The same, read (`ModelFacts`).
        library: Path of the operator library in use, or None.
        library_reason: One sentence: why that library, or why none.
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
    ) -> None:
        """Load a model file.

        Args:
            path: An ONNX file, by nystra-export or by another program.
            backend: ``ort-cpu``, ``openvino``, ..., or ``auto`` for the first that is there.
                ``openvino:GPU`` names a device, too.
            threads: Number of threads, or None for the backend's own choice.
            library: The operator library: ``auto`` takes the one built with nystra if it is
                there and can serve the model; None or ``none`` runs the operators' ONNX bodies;
                a path takes that one.
            precision: What the backend is to compute in: ``bf16`` or ``fp32`` in ``openvino``.
                None: as the file says, which is all that other backends do.
            device: One of the backend's devices, or None for its usual one.
            options: Of the backend, by name.

        Raises:
            NystraError: The file is missing, not ONNX or cut short, or an argument is wrong.
            BackendUnavailableError: The backend, or a library the model needs, is missing.
        """
        spec = SessionSpec(Path(path), backend, threads, library, precision, device, options)
        if spec.backend == FASTEST:
            raise NystraError(
                "fastest is no backend: nystra.runtime.choose_fastest times a SessionSpec and "
                "returns the one to open"
            )
        self.path = spec.model
        self.precision = precision
        self.backend, kind = backend_class(spec.backend_name)
        self.spec = replace(spec, backend=self.backend.partition(":")[0])
        header = read_onnx_header(self.path)
        stated = ModelMetadata.read(header.metadata)
        require_precision(self.backend, kind, self.path, stated.precision)
        how: dict[str, Any] = {"threads": threads, "library": spec.library}
        if precision is not None:
            require_arithmetic(self.backend, kind, precision)
            how["precision"] = precision
        self._backend = kind(self.path, header, **how)
        self.inputs = self._backend.inputs
        self.outputs = self._backend.outputs
        self.metadata = self._backend.metadata
        self.library = self._backend.library
        self.library_reason = self._backend.library_reason
        self.facts: ModelFacts = parse_facts(self.metadata, self.inputs, self.outputs)

    def run(self, feeds: Mapping[str, Array], *, release: bool = False) -> dict[str, Array]:
        """Run the model once.

        Args:
            feeds: Input name -> array. Floating arrays are converted to the input's own
                floating type; nothing else is converted. Nothing is changed in place.
            release: Give the memory that the run took back to the system, where the backend can;
                the next run has to ask for it again.

        Returns:
            Output name -> array, in the order of `outputs`.

        Raises:
            NystraError: A name, type or shape is wrong, or the backend fails.
        """
        wanted = {tensor.name: tensor for tensor in self.inputs}
        if set(feeds) != set(wanted):
            raise NystraError(
                f"{self.path} got the inputs {sorted(feeds)}, expected {sorted(wanted)}"
            )
        run = self._backend.run
        if release:
            run = getattr(self._backend, "run_and_release", run)
        return run({name: _fit(wanted[name], np.asarray(array)) for name, array in feeds.items()})

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
                f"{self.path} has no input that is plainly an image (floating, 4-D, the only "
                f"one): its inputs are {names}. Use run() with names."
            )
        return self.run({port.name: image, **others})[self.outputs[0].name]


def _fit(tensor: TensorInfo, array: Array) -> Array:
    """Return the array in the input's type, or say what is wrong with it."""
    if not array.dtype.isnative:  # a backend takes the bytes as they lie
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.name != tensor.dtype:
        floating = array.dtype.kind == "f" and tensor.dtype in ("float16", "float32", "float64")
        if not floating:
            raise NystraError(
                f"the input {tensor.name!r} got {array.dtype.name}, expected {tensor.dtype}: "
                "convert it first (8-bit pictures: divide by 255)"
            )
        array = array.astype(tensor.dtype)
    fits = len(array.shape) == len(tensor.shape) and all(
        not isinstance(expected, int) or expected == got
        for expected, got in zip(tensor.shape, array.shape, strict=False)
    )
    if not fits:
        raise NystraError(
            f"the input {tensor.name!r} got the shape {array.shape}, expected {tensor.shape}"
        )
    if 0 in array.shape:
        raise NystraError(f"the input {tensor.name!r} is empty: its shape is {array.shape}")
    return array
