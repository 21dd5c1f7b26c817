"""The settings of a session: a record to store, to change, to send and to open."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..core.errors import NystraError
from ..core.option import Options, option
from ..core.ports.port import Range
from .options import BACKEND, EP_LIBRARY, LIBRARY, PRECISION, RANGE, THREADS

FASTEST = "fastest"
"""Not a backend: `choose_fastest` replaces it by the fastest one."""


@dataclass(frozen=True)
class SessionSpec(Options):
    """A model file and the settings of a session.

    `Session.open` opens it, and ``dataclasses.replace`` changes a setting:
    ``Session.open(replace(session.spec, threads=1))``.

    Attributes:
        model: The model file.
        backend: ``ort-cpu``, ``openvino``, ..., or ``auto`` for the first available one.
            ``openvino:GPU`` and ``ort:WebGpuExecutionProvider`` are split into backend and device.
        threads: Number of threads, or None for the default of the backend.
        library: The operator library: ``auto`` uses nystra's library if it is installed and
            supports the model; ``none`` (or None) runs the operators' ONNX bodies; a path uses that
            library.
        precision: The precision of the computation, or None for the types of the file.
        device: A device of the backend, or None for its default.
        options: Options of the backend, by name.
        ep_library: The plug-in library with the execution provider of ``ort:NAME``, or None for a
            provider that is built in or installed as a package.
        range: The ranges of the values of input and output image, or None for those that the file
            states, or that are measured; also a text such as ``0..255``.
    """

    model: Path
    backend: str = option(BACKEND)
    threads: int | None = option(THREADS)
    library: str | Path | None = option(LIBRARY)
    precision: str | None = option(PRECISION)
    device: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    ep_library: Path | None = option(EP_LIBRARY)
    range: tuple[Range, Range] | None = option(RANGE)

    def __post_init__(self) -> None:
        backend, colon, device = self.backend.partition(":")
        if colon and self.device not in (None, device):
            raise NystraError(f"got the backend {self.backend!r} and the device {self.device!r}")
        own = {
            "model": Path(self.model),
            "backend": backend,
            "device": device if colon else self.device,
            "library": "none" if self.library is None else str(self.library),
            "options": dict(self.options),
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)
        super().__post_init__()

    @property
    def backend_name(self) -> str:
        """Backend and device as on the command line: ``ort-cpu``, ``openvino:GPU``."""
        return self.backend if self.device is None else f"{self.backend}:{self.device}"

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form with absolute paths, for another process of this machine."""
        document = {item.name: getattr(self, item.name) for item in fields(self)}
        document["model"] = os.path.abspath(self.model)
        if self.library not in ("auto", "none"):
            document["library"] = os.path.abspath(str(self.library))
        if self.ep_library is not None:
            document["ep_library"] = os.path.abspath(self.ep_library)
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> SessionSpec:
        """Return the spec of a document of `as_dict`.

        Raises:
            NystraError: A key is unknown or missing.
        """
        expected = {item.name for item in fields(cls)}
        if set(document) != expected:
            raise NystraError(
                f"expected the keys {sorted(expected)} of a session, got {sorted(document)}"
            )
        return cls(**document)
