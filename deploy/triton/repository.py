"""Writing the folder that Triton serves a model from."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.reading import file_sha256
from ...core.files.writing import atomic_folder
from ...core.plain_text import printable
from ...plugins.library import choose_library
from ...runtime.engines.cache import Engine, EngineRecord
from ...runtime.images.image_data import ImageData
from ...runtime.images.images import encode_image
from ...runtime.model.model_copy import COPY, ModelCopy
from ...runtime.model.onnx_header import OnnxHeader, read_onnx_header
from ...runtime.options import RANGE
from ...runtime.session import Session
from ...runtime.tasks.classification.listing import check_labels, read_labels
from ...runtime.tasks.handler import Handler
from ...runtime.tasks.registry import find_handler
from .config import (
    LABELS,
    WARM_UP_IMAGE,
    file_config,
    kept_metadata,
    parameters,
    takes_batches,
    tensor_config,
    warm_up_side,
)
from .options import TritonOptions
from .readme import readme
from .text_format import text_format

MODEL_PY = '''"""Where Triton's python backend looks; the class is part of nystra."""

from nystra.deploy.triton.python_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''

_VERSION = "1"


def write_repository(
    model: str | os.PathLike[str],
    repository: str | os.PathLike[str],
    options: TritonOptions | None = None,
) -> Path:
    """Write a model into a model repository of Triton: one folder, atomically.

    Args:
        model: The ONNX file.
        repository: The model repository, which is created; other models in it are unchanged.
        options: The options.

    Returns:
        The model's folder in it.

    Raises:
        NystraError: The backend cannot serve the file, or the folder of the model exists already.
        BackendUnavailableError: No installed backend can load the file to read its inputs, or an
            engine needs a library that is not installed.
    """
    options = options or TritonOptions()
    entry = _Model(Path(model), options)
    target = Path(repository, entry.name)
    with atomic_folder(target, overwrite=options.overwrite) as folder:
        entry.write(folder)
    return target


class _Model:
    def __init__(self, path: Path, options: TritonOptions) -> None:
        self.path, self.options = path, options
        self.name = options.name or path.stem
        TritonOptions(name=self.name)  # a stem may be no name of a model
        self.session = Session(path, range=options.range)
        self.facts = self.session.facts
        self.header = read_onnx_header(path)
        stated = () if options.labels is None else read_labels(options.labels)
        own = self.facts.preprocessing.labels if self.facts.preprocessing else ()
        self.labels = stated or own
        classes = self.facts.outputs[0].channels
        if options.labels is not None and "classes" not in self.facts.outputs[0].axes:
            raise NystraError(f"`labels` is for classifiers, and {path} is none")
        if self.labels and classes is not None:
            check_labels(self.labels, classes, str(options.labels or path))
        self.copy = ModelCopy.of(path)
        self.record = self._record()
        self.library = library_for(options, self.header, self.record)
        self.handler: Handler | None = None
        self._check_backend()

    def write(self, folder: Path) -> None:
        version = folder / _VERSION
        version.mkdir()
        if self.record is not None:
            shutil.copyfile(str(self.options.engine), version / "model.plan")
        else:
            self.copy.write(version)
        if self.library is not None:
            shutil.copyfile(self.library, version / self.library.name)
        if self.labels:
            text = "".join(f"{printable(label)}\n" for label in self.labels)
            (folder / LABELS).write_text(text, encoding="utf-8")
        config = self._config(version)
        if self.options.facts.files:
            (version / "model.py").write_text(MODEL_PY, encoding="utf-8")
            self._write_warm_up(folder, config)
        (folder / "config.pbtxt").write_text(text_format(config), encoding="utf-8")
        text = readme(self.name, self.options, self.facts, self.handler, self.library, self.record)
        (folder / "README.md").write_text(text, encoding="utf-8")

    def _config(self, version: Path) -> dict[str, Any]:
        options, labels = self.options, bool(self.labels)
        about = kept_metadata(self.header.metadata)
        copied = version / COPY
        about["nystra.model.sha256"] = file_sha256(copied if copied.is_file() else self.path)
        if self.handler is not None:
            tensors = self.handler.tensors
            config = file_config(self.name, self.facts, tensors, options, labels=labels)
            about |= {
                "session_backend": options.facts.gpu_session if options.gpu else "auto",
                "library": "none" if options.library == "none" else "auto",
                "tile": str(options.tile),
            }
            chosen = {"threads": options.threads, "overlap": options.overlap}
            if options.range is not None:
                about["range"] = RANGE.show(options.range)
            return config | {"parameters": parameters({**about, **chosen})}
        config = tensor_config(self.name, self.facts, options, self._max_batch(), labels=labels)
        if options.facts.libraries and options.threads is not None:
            about["intra_op_thread_count"] = str(options.threads)
        if options.facts.libraries and self.library is not None:
            place = f"{options.server_path.rstrip('/')}/{self.name}/{_VERSION}/{self.library.name}"
            config["model_operations"] = {"op_library_filename": [place]}
        if not options.facts.default_file:
            config["default_model_filename"] = COPY
        return config | {"parameters": parameters(about)}

    def _max_batch(self) -> int:
        """Return how many images run at once; 0 where the batch is a number of the file."""
        if not takes_batches(self.facts):
            return 0
        if self.record is None:
            return self.options.max_batch
        return min(row[2][0] for row in self.record.profile.values())

    def _record(self) -> EngineRecord | None:
        if self.options.engine is None:
            return None
        engine = Path(self.options.engine)
        record = Engine.beside(engine).record
        if record.backend != self.options.backend:
            raise NystraError(
                f"{engine} is an engine for {record.backend}, expected one for "
                f"{self.options.backend}"
            )
        if record.hashes.get("model") != file_sha256(self.path):
            raise NystraError(f"the engine {engine} was built from another model than {self.path}")
        return record

    def _check_backend(self) -> None:
        """Refuse a model that the backend would refuse on the server."""
        if self.options.facts.files:
            self.handler = find_handler(self.session).open(self.session, self.name)
        elif not self.options.facts.operators and self.header.has_operators:
            raise NystraError(
                f"{self.path} has operators of nystra, which Triton's {self.options.backend} "
                "backend does not support: export it with `inline`, or use `backend` python; see "
                "docs/serving.md"
            )

    def _write_warm_up(self, folder: Path, config: dict[str, Any]) -> None:
        if "model_warmup" not in config:
            return
        image = self.facts.inputs[0]
        side = warm_up_side(self.facts)
        sides = image.sides or {"height": side, "width": side}
        channels = image.channels if image.channels in (1, 3) else 3
        gray = np.full((sides["height"], sides["width"], channels), 0.5, np.float32)
        data = encode_image(ImageData(gray), "PNG")
        (folder / "warmup").mkdir()
        # A tensor of texts: each with its length before it.
        (folder / "warmup" / WARM_UP_IMAGE).write_bytes(struct.pack("<I", len(data)) + data)


def library_for(
    options: TritonOptions, header: OnnxHeader, record: EngineRecord | None
) -> Path | None:
    """Return the library that the server loads with the model, or None.

    The python backend has nystra's own; onnxruntime runs the operators' bodies without one; an
    engine whose plugins are missing cannot be loaded.

    Args:
        options: The options.
        header: Header of the model file.
        record: Record of the engine, for TensorRT.

    Raises:
        NystraError: The path given is not a file.
        BackendUnavailableError: The engine has plugins, and their library is not here.
    """
    if record is not None:
        major = record.version.partition(".")[0]
        name = f"nystra_trt_register{major}"
        choice = choose_library(options.library, needed=bool(record.plugins), name=name)
        if record.plugins and choice.path is None and options.library != "none":
            raise BackendUnavailableError(
                f"the engine has {len(record.plugins)} plugins of nystra, and {choice.reason}. "
                f"Give `library` lib{name}.so, or `library` none to load it on the server yourself"
            )
        return choice.path
    if not options.facts.libraries:
        return None
    name = "nystra_onnxruntime_cuda" if options.gpu else "nystra_onnxruntime"
    return choose_library(options.library, needed=header.has_operators, name=name).path
