"""What is asked for besides a model file and a repository."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ...core.errors import NystraError

BACKENDS = ("python", "onnxruntime", "tensorrt", "openvino")
"""Backends of Triton that a folder is written for."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True)
class TritonOptions:
    """The flags of ``nystra deploy triton``.

    Attributes:
        backend: A backend of Triton, one of `BACKENDS`.
        name: What clients call the model; None is the stem of the file.
        instances: Copies of the model that run at the same time.
        gpu: They run on a GPU.
        max_batch: Most images that are run at once, where the model takes any number.
        threads: Of an instance; None leaves it to the library that runs the model.
        tile: Side of the tiles of the python backend in input pixels; 0 is by the memory.
        overlap: Of these tiles in input pixels; None is 32, less where the tile is small.
        engine: For TensorRT: an engine of ``nystra build -o``, its record beside it.
        labels: File of what the classes are called; None takes the model's own.
        library: The operator library: ``auto``, ``none`` or a path.
        server_path: Where the server sees the repository.
        overwrite: Replace the model's folder where there is one.
    """

    backend: str = "python"
    name: str | None = None
    instances: int = 1
    gpu: bool = False
    max_batch: int = 8
    threads: int | None = None
    tile: int = 0
    overlap: int | None = None
    engine: str | os.PathLike[str] | None = None
    labels: str | os.PathLike[str] | None = None
    library: str = "auto"
    server_path: str = "/models"
    overwrite: bool = False

    def __post_init__(self) -> None:
        """Refuse what no server takes, and what contradicts itself."""
        if self.backend not in BACKENDS:
            raise NystraError(f"the backend is {self.backend!r}, expected {', '.join(BACKENDS)}")
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise NystraError(
                f"the model's name is {self.name!r}, expected letters, digits, _ . and -: give "
                "another --name"
            )
        for flag, number, least in (
            ("--instances", self.instances, 1),
            ("--max-batch", self.max_batch, 1),
            ("--threads", 1 if self.threads is None else self.threads, 1),
            ("--tile", self.tile, 0),
            ("--overlap", self.overlap or 0, 0),
        ):
            if number < least:
                raise NystraError(f"{flag} is {number}, expected {least} or more")
        if not self.server_path.startswith("/"):
            raise NystraError(
                f"--server-path is {self.server_path!r}, expected an absolute path of the server"
            )
        if (self.engine is not None) != (self.backend == "tensorrt"):
            raise NystraError(
                "TensorRT runs an engine: build one on a GPU like the server's with nystra build "
                "MODEL.onnx -o model.engine, and give --engine model.engine"
                if self.engine is None
                else f"--engine is for --backend tensorrt, got {self.backend}"
            )
        if self.gpu and self.backend == "openvino":
            raise NystraError("--gpu does not apply to OpenVINO, which runs on the CPU: leave it")
        if (self.tile or self.overlap is not None) and self.backend != "python":
            raise NystraError(
                f"--tile and --overlap are for --backend python: {self.backend} gives Triton the "
                "network alone, and the client cuts pictures"
            )
