"""The table of backends: what runs a model file.

To add one, write a module with a class like `OrtCpuBackend` and give it a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from ...plugins.errors import BackendUnavailableError, NystraError
from ..model.model_ports import TensorInfo
from ..model.onnx_header import OnnxHeader

__all__ = ["Backend", "backend_class", "backend_names"]

_BACKENDS = {
    "ort-cpu": ("ort_cpu", "OrtCpuBackend"),
    "tensorrt": ("tensorrt", "TensorrtBackend"),
    "tensorrt-rtx": ("tensorrt_rtx", "TensorrtRtxBackend"),
    "ort-cuda": ("ort_cuda", "OrtCudaBackend"),
    "ort-tensorrt": ("ort_tensorrt", "OrtTensorrtBackend"),
}
"""Name -> (module, class), in the order ``auto`` tries them."""


class Backend(Protocol):
    """What runs one loaded model file.

    Attributes:
        inputs: The graph's inputs.
        outputs: The graph's outputs.
        metadata: The file's ``metadata_props``.
        library: The operator library in use, or None.
        library_reason: One sentence: why that library, or why none.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    metadata: dict[str, str]
    library: Path | None
    library_reason: str

    def __init__(
        self, path: Path, header: OnnxHeader, *, threads: int | None, library: str | Path | None
    ) -> None:
        """Load the model file."""

    @staticmethod
    def available() -> tuple[bool, str]:
        """Return whether the backend can run here, and a sentence that says why (not)."""

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Run the model once; safe to call from several threads."""


def backend_names() -> tuple[str, ...]:
    """Return the names of the backends of this version, in the order ``auto`` tries them."""
    return tuple(_BACKENDS)


def backend_class(name: str) -> tuple[str, type[Backend]]:
    """Return the name and class of a backend that can run on this machine.

    Args:
        name: A name of the table, or ``auto`` for the first one that is available.

    Raises:
        NystraError: The name is not one of nystra's.
        BackendUnavailableError: The backend is not installed here; the message says what to do.
    """
    if name != "auto" and name not in _BACKENDS:
        known = ", ".join(("auto", *_BACKENDS))
        raise NystraError(f"unknown backend {name!r}: expected one of {known}")
    reasons = []
    for candidate in _BACKENDS if name == "auto" else (name,):
        found = _load(candidate)
        usable, reason = found.available()
        if usable:
            return candidate, found
        reasons.append(reason)
    lead = "no backend can run here. " if name == "auto" else ""
    raise BackendUnavailableError(lead + "; ".join(dict.fromkeys(reasons)))


def _load(name: str) -> type[Backend]:
    module, attribute = _BACKENDS[name]
    found: type[Backend] = getattr(import_module(f".{module}", __name__), attribute)
    return found
