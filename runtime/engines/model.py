"""The model an engine is built from, and the plugin library that goes with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.files.reading import file_sha256
from ..library import choose_library
from ..model.external_data import external_files
from ..model.model_facts import parse_facts
from ..model.model_ports import TensorInfo
from ..model.onnx_header import read_onnx_header
from .profile import EngineShapes, Profile, make_profile

LIBRARY = "nystra_trt"
"""The plugin library, as `library_path` names it."""


@dataclass(frozen=True)
class EngineModel:
    """A model file and the plugins it is built with.

    Attributes:
        path: The ONNX file.
        library: The plugin library, or None: the operators' bodies are compiled.
        library_reason: One sentence that explains the choice of the library.
    """

    path: Path
    library: Path | None
    library_reason: str

    @classmethod
    def open(cls, path: str | os.PathLike[str], library: str | Path | None = "auto") -> EngineModel:
        """Find a model and its plugins.

        Args:
            path: The ONNX file.
            library: ``auto``, ``none`` or the path of a built libnystra_trt.

        Raises:
            NystraError: The file is missing or not ONNX, or the library given is not a file.
        """
        needed = read_onnx_header(path).has_operators
        choice = choose_library(library, needed=needed, name=LIBRARY, what="plugin library")
        reason = choice.reason + ("; the operators' bodies are compiled" if choice.missing else "")
        return cls(Path(path).absolute(), choice.path, reason)

    def request(self, backend: str) -> dict[str, Any]:
        """Return the common part of all requests about this model."""
        return {
            "backend": backend,
            "model": str(self.path),
            "library": None if self.library is None else str(self.library),
        }

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of all that an engine is built from, as `EngineRecord.hashes`.

        Raises:
            NystraError: A file cannot be read, or the model refers to one outside its folder.
        """
        files = {"model": self.path}
        files |= {f"data {name}": file for name, file in external_files(self.path).items()}
        if self.library is not None:
            files["library"] = self.library
        return {name: file_sha256(file) for name, file in files.items()}

    def profile(
        self,
        inputs: Sequence[Mapping[str, Any]],
        shapes: EngineShapes | None = None,
        tile: int | None = None,
    ) -> Profile:
        """Return the profile of the network whose inputs the worker described.

        Raises:
            NystraError: See `make_profile`.
        """
        tensors = [
            TensorInfo(tensor["name"], tuple(tensor["shape"]), tensor["dtype"]) for tensor in inputs
        ]
        facts = parse_facts(read_onnx_header(self.path).metadata, tensors, [])
        return make_profile(facts.inputs, shapes, tile)
