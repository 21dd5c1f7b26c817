"""The table of backends, which run model files.

To add one, write a module with a subclass of `Backend`, its properties on the class, and add a row
here. A backend that must not be imported from here (PyTorch) is registered by `register_backend`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import BackendUnavailableError, NystraError
from ..session_spec import FASTEST, SessionSpec

if TYPE_CHECKING:
    from .base import Backend

__all__ = [
    "artifact_of",
    "backend_class",
    "backend_names",
    "find_backend",
    "list_timed_backends",
    "open_backend",
    "register_backend",
]

_BACKENDS = {
    "ort-cpu": ("ort_cpu", "OrtCpuBackend"),
    "tensorrt": ("tensorrt", "TensorrtBackend"),
    "tensorrt-rtx": ("tensorrt_rtx", "TensorrtRtxBackend"),
    "ort-cuda": ("ort_cuda", "OrtCudaBackend"),
    "ort-tensorrt": ("ort_tensorrt", "OrtTensorrtBackend"),
    "openvino": ("openvino.backend", "OpenvinoBackend"),
    "ort": ("ort", "OrtProviderBackend"),
}
"""Name -> (module, class), in the order in which ``auto`` tries those with `Backend.automatic`."""

_REGISTERED: dict[str, type[Backend]] = {}


def backend_names() -> tuple[str, ...]:
    """Return the names of the backends of this version, in the order ``auto`` tries them."""
    return tuple(_BACKENDS)


def list_timed_backends() -> list[str]:
    """Return the names of the backends that ``fastest`` and `accelerate` time."""
    return [name for name in _BACKENDS if find_backend(name).timed]


def register_backend(name: str, kind: type[Backend]) -> None:
    """Add a backend for this process; ``auto`` tries it only for files that no other opens.

    Raises:
        NystraError: The name is one of the table.
    """
    if name in _BACKENDS or name in ("auto", FASTEST):
        raise NystraError(f"a backend {name!r} is already registered: choose another name")
    _REGISTERED[name] = kind


def find_backend(name: str) -> type[Backend]:
    """Return the class of a backend, available or not.

    Args:
        name: A name of the table; of a backend that has several devices also with one of them,
            ``openvino:GPU``, or ``ort:WebGpuExecutionProvider``.

    Raises:
        NystraError: The name is not one of nystra's.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    table, colon, device = name.partition(":")
    if table not in _BACKENDS:
        names = ", ".join(("auto", FASTEST, *_BACKENDS, *_REGISTERED))
        raise NystraError(f"unknown backend {name!r}: expected one of {names}")
    module, attribute = _BACKENDS[table]
    kind: type[Backend] = getattr(import_module(f".{module}", __name__), attribute)
    if not colon:
        return kind
    if not kind.devices:
        raise NystraError(f"{table} takes no device: got {name!r}, expected {table!r}")
    return kind.on(device)


def artifact_of(path: Path) -> str:
    """Return the kind of a file: its suffix if that is the `artifact` of a backend, else onnx."""
    suffix = path.suffix.removeprefix(".")
    if suffix == "onnx":  # else the modules of all backends are imported
        return suffix
    others = (find_backend(name).artifact for name in (*_BACKENDS, *_REGISTERED))
    return suffix if suffix in others else "onnx"


def backend_class(name: str, artifact: str = "onnx") -> tuple[str, type[Backend]]:
    """Return the name and class of a backend that can run on this machine.

    Args:
        name: A name of the table, or ``auto`` for the first one that is available.
        artifact: The kind of file that it is to open.

    Raises:
        NystraError: The name is not one of nystra's, or that backend opens other kinds of files.
        BackendUnavailableError: The backend is not installed here; the message says what to do.
    """
    reasons = []
    names = _openers(artifact) if name == "auto" else (name,)
    for candidate in names:
        kind = find_backend(candidate)
        if kind.artifact != artifact:
            raise NystraError(
                f"{candidate} opens {kind.artifact} files, this is a file of {artifact}: use "
                f"`backend` {' or '.join(_openers(artifact))}"
            )
        usable, reason = kind.available()
        if usable:
            return candidate, kind
        reasons.append(reason)
    lead = "no backend is available on this machine. " if name == "auto" else ""
    raise BackendUnavailableError(lead + "; ".join(dict.fromkeys(reasons)))


def open_backend(spec: SessionSpec) -> Backend:
    """Load a model file in the backend that is requested, or in the first that can run here.

    Raises:
        NystraError: The file is missing or wrong, or an argument does not apply.
        BackendUnavailableError: The backend, or something that the file needs, is missing.
    """
    name, kind = backend_class(spec.backend_name, artifact_of(spec.model))
    backend = kind(replace(spec, backend=name.partition(":")[0]))
    require_precision(name, kind, spec.model, backend.stated.precision)
    if spec.ep_library is not None and not kind.plugs_in:
        raise NystraError(
            f"`ep_library` is a plug-in of onnxruntime and does not apply to {name}: give "
            "`backend` ort:NAME with the name of its execution provider"
        )
    if spec.precision is not None:
        _require_arithmetic(name, kind, spec.precision)
    backend.load()
    return backend


def _openers(artifact: str) -> Iterator[str]:
    """Yield the backends that open a kind of file: of the table, otherwise the registered ones.

    A module is imported on use: ``auto`` usually ends with the first one.
    """
    none = True
    for name in _BACKENDS:
        kind = find_backend(name)
        if kind.artifact == artifact and kind.automatic:
            none = False
            yield name
    if none:
        yield from (name for name, kind in _REGISTERED.items() if kind.artifact == artifact)


def _require_arithmetic(name: str, kind: type[Backend], precision: str) -> None:
    if precision in kind.arithmetic:
        return
    takers = [other for other in _BACKENDS if find_backend(other).arithmetic]
    raise NystraError(
        f"`precision` {precision} does not apply to {name}: expected "
        + (
            " or ".join(sorted(kind.arithmetic))
            or f"none, it computes in the types of the file ({', '.join(takers)} can choose)"
        )
    )


def require_precision(name: str, kind: type[Backend], path: Path, precision: str | None) -> None:
    """Raise `BackendUnavailableError` if only other backends support a file's precision.

    Args:
        name: Name of the backend.
        kind: Its class.
        path: The model file.
        precision: The value of ``nystra.precision``, or None.
    """
    if precision is None or precision in kind.precisions:
        return
    takers = [other for other in _BACKENDS if precision in find_backend(other).precisions]
    if takers:
        raise BackendUnavailableError(
            f"{path} computes in {precision}, and {name} has no arithmetic of that type: use "
            f"`backend` {' or '.join(takers)}, or export it with `precision` fp16 or fp32; "
            "see docs/precision.md"
        )
