"""The options of a model in Triton's model repository."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...core.errors import NystraError
from ...core.option import Options, option
from ...core.option_kinds import Choice, File, Number, Switch, Text
from ...core.plain_text import PLAIN_NAME, is_plain_name
from ...core.ports.port import Range
from ...runtime.options import BATCH, LABELS, LIBRARY, OVERLAP, OVERWRITE, RANGE, THREADS, TILE
from ..model_name import check_model_name


@dataclass(frozen=True)
class TritonBackend:
    """A backend of Triton.

    Attributes:
        files: It takes image files, which nystra in the server's Python restores; else tensors.
        engine: It runs an engine of ``nystra build``, on a GPU.
        chooses_gpu: It runs on the CPU or, if requested, on a GPU.
        libraries: It loads the library of operators by an entry of the configuration.
        operators: It runs files with operators of nystra.
    """

    files: bool = False
    engine: bool = False
    chooses_gpu: bool = True
    libraries: bool = False
    operators: bool = True


BACKENDS = {
    "python": TritonBackend(files=True),
    "onnxruntime": TritonBackend(libraries=True),
    "tensorrt": TritonBackend(engine=True),
    "openvino": TritonBackend(chooses_gpu=False, operators=False),
}


@dataclass(frozen=True)
class TritonOptions(Options):
    """Options of a model repository for Triton."""

    backend: str = option(
        Choice(
            "python",
            "backend of Triton: python takes image files and tiles them; onnxruntime, tensorrt "
            "and openvino take tensors",
            tuple(BACKENDS),
            metavar="NAME",
        )
    )
    name: str | None = option(
        Text(None, "model name for clients", default_text="the stem of the file", metavar="NAME")
    )
    instances: int = option(Number(1, "instances of the model", 1, hard_maximum=256))
    gpu: bool = option(Switch("run on a GPU"))
    max_batch: int = option(BATCH, doc="maximum batch size, for backends that take tensors")
    threads: int | None = option(
        THREADS,
        doc="threads per instance",
        default_text="chosen by the library that runs the model",
    )
    tile: int = option(TILE)
    overlap: int | None = option(OVERLAP)
    engine: str | os.PathLike[str] | None = option(
        File(None, "for tensorrt: an engine from nystra build -o, with its record next to it")
    )
    range: tuple[Range, Range] | None = option(RANGE)
    labels: str | os.PathLike[str] | None = option(LABELS)
    library: str = option(LIBRARY, doc="the operator or plugin library to include")
    server_path: str = option(
        Text("/models", "path of the repository on the server", metavar="FOLDER")
    )
    overwrite: bool = option(OVERWRITE, doc="replace an existing folder of the model")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model_name(self.name)
        if not self.server_path.startswith("/") or not is_plain_name(self.server_path):
            raise NystraError(
                f"`server_path` is {self.server_path!r}, expected an absolute path of the server, "
                f"of {PLAIN_NAME}"
            )
        if self.facts.engine and self.engine is None:
            raise NystraError(
                "`backend` tensorrt needs an engine: build one with nystra build MODEL.onnx -o "
                "model.engine on the same type of GPU as the server's, and give `engine` "
                "model.engine; see docs/serving.md"
            )
        refusals = {
            "`engine` is for `backend` tensorrt": self.engine is not None and not self.facts.engine,
            "`gpu` does not apply to it, which runs on the CPU": (
                self.gpu and not self.facts.chooses_gpu
            ),
            "`range`, `tile` and `overlap` are for `backend` python: Triton runs the network alone "
            "here, and the client sends its values and has to tile": not self.facts.files
            and (self.range is not None or bool(self.tile) or self.overlap is not None),
        }
        for words, refused in refusals.items():
            if refused:
                raise NystraError(f"`backend` {self.backend}: {words}; omit it")

    @property
    def facts(self) -> TritonBackend:
        """What is known of the backend."""
        return BACKENDS[self.backend]

    @property
    def on_gpu(self) -> bool:
        """Whether the model runs on a GPU."""
        return self.gpu or self.facts.engine
