"""The table of backends: what runs a model file.

To add one, write a module with a class like `OrtCpuBackend`, its facts on the class, and give it a
row here. A backend that must not be imported from here (PyTorch) is handed over by
`register_backend`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ...core.errors import BackendUnavailableError, NystraError
from ..session_spec import FASTEST

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..model.model_ports import TensorInfo
    from ..model.onnx_header import OnnxHeader

__all__ = ["Backend", "backend_class", "backend_names", "find_backend", "register_backend"]

_BACKENDS = {
    "ort-cpu": ("ort_cpu", "OrtCpuBackend"),
    "tensorrt": ("tensorrt", "TensorrtBackend"),
    "tensorrt-rtx": ("tensorrt_rtx", "TensorrtRtxBackend"),
    "ort-cuda": ("ort_cuda", "OrtCudaBackend"),
    "ort-tensorrt": ("ort_tensorrt", "OrtTensorrtBackend"),
    "openvino": ("openvino.backend", "OpenvinoBackend"),
}
"""Name -> (module, class), in the order ``auto`` tries them."""

_HANDED: dict[str, type[Backend]] = {}


class Backend(Protocol):
    """What runs one loaded model file.

    Attributes:
        device: Of the class: ``cpu`` or ``cuda``, where it computes.
        engine: Of the class: the builder (`engines.toolkit`) of the engines that it runs, or None
            where it takes the model file itself.
        precisions: Of the class: the ``nystra.precision`` of the files that it computes in.
        library_name: Of the class: the operator library that ``auto`` takes, as `library_path`
            names it; None where it takes none.
        bodies: Of the class: whether it computes operators by the bodies in the file, where it has
            no library.
        arithmetic: Of the class, and only of one that computes in more than the file's own
            precision: what a session may ask for, handed over as ``precision``.
        on: Of the class, and only of one that has several devices: the class of a device's name.
        inputs: The graph's inputs.
        outputs: The graph's outputs.
        metadata: The file's ``metadata_props``.
        library: The operator library in use, or None.
        library_reason: One sentence: why that library, or why none.
    """

    device: ClassVar[str]
    engine: ClassVar[str | None]
    precisions: ClassVar[frozenset[str]]
    library_name: ClassVar[str | None]
    bodies: ClassVar[bool]
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


def register_backend(name: str, kind: type[Backend]) -> None:
    """Hand over a backend for this process; ``auto`` does not try it.

    Raises:
        NystraError: The name is one of the table.
    """
    if name in _BACKENDS or name in ("auto", FASTEST):
        raise NystraError(f"there is a backend {name!r} already: choose another name")
    _HANDED[name] = kind


def find_backend(name: str) -> type[Backend]:
    """Return the class of a backend, whether or not it can run here.

    Args:
        name: A name of the table; of a backend that has several devices also with one of them,
            ``openvino:GPU``.

    Raises:
        NystraError: The name is not one of nystra's.
    """
    if name in _HANDED:
        return _HANDED[name]
    table, colon, place = name.partition(":")
    if table not in _BACKENDS:
        known = ", ".join(("auto", FASTEST, *_BACKENDS, *_HANDED))
        raise NystraError(f"unknown backend {name!r}: expected one of {known}")
    module, attribute = _BACKENDS[table]
    kind: type[Backend] = getattr(import_module(f".{module}", __name__), attribute)
    if not colon:
        return kind
    if not hasattr(kind, "on"):
        raise NystraError(f"{table} takes no device: got {name!r}, expected {table!r}")
    of_device: type[Backend] = kind.on(place)
    return of_device


def backend_class(name: str) -> tuple[str, type[Backend]]:
    """Return the name and class of a backend that can run on this machine.

    Args:
        name: A name of the table, or ``auto`` for the first one that is available.

    Raises:
        NystraError: The name is not one of nystra's.
        BackendUnavailableError: The backend is not installed here; the message says what to do.
    """
    reasons = []
    for candidate in _BACKENDS if name == "auto" else (name,):
        kind = find_backend(candidate)
        usable, reason = kind.available()
        if usable:
            return candidate, kind
        reasons.append(reason)
    lead = "no backend can run here. " if name == "auto" else ""
    raise BackendUnavailableError(lead + "; ".join(dict.fromkeys(reasons)))


def require_arithmetic(name: str, kind: type[Backend], precision: str) -> None:
    """Raise `NystraError` where a backend does not compute in what a session asks for.

    Args:
        name: Of the backend.
        kind: Its class.
        precision: What was asked for.
    """
    offered: frozenset[str] = getattr(kind, "arithmetic", frozenset())
    if precision in offered:
        return
    takers = [other for other in _BACKENDS if hasattr(find_backend(other), "arithmetic")]
    raise NystraError(
        f"precision {precision} does not apply to {name}: expected "
        + (
            " or ".join(sorted(offered))
            or f"none, it computes as the file says ({', '.join(takers)} can choose)"
        )
    )


def require_precision(name: str, kind: type[Backend], path: Path, precision: str | None) -> None:
    """Raise `BackendUnavailableError` where only other backends compute in a file's precision.

    Args:
        name: Of the backend.
        kind: Its class.
        path: The model file.
        precision: What ``nystra.precision`` says, or None.
    """
    if precision is None or precision in kind.precisions:
        return
    takers = [other for other in _BACKENDS if precision in find_backend(other).precisions]
    if takers:
        raise BackendUnavailableError(
            f"{path} computes in {precision}, and {name} has no arithmetic of that type: use "
            f"--backend {' or '.join(takers)}, or export it with --precision fp16 or fp32"
        )
